"""Collectives by the names that settings use; all are called alike."""

from collections.abc import Callable

from torch import Tensor

from paceline.errors import SettingError
from paceline.exchange.collective import (
    hierarchical,
    multicolor,
    native,
    parameter_server,
    ring,
    tree,
)
from paceline.exchange.collective.wire import Wire

AllReduce = Callable[[Tensor, Wire], None]

_COLLECTIVES: dict[str, AllReduce] = {
    "native": native.all_reduce,
    "ring": ring.all_reduce,
    "tree": tree.all_reduce,
    "multicolor": multicolor.all_reduce,
    "parameter_server": parameter_server.all_reduce,
    "hierarchical": hierarchical.all_reduce,
}
COLLECTIVES = tuple(_COLLECTIVES)


def collective(name: str) -> AllReduce:
    """Sums a contiguous vector [num_elements] over a wire's workers, in place, on each of them.

    Every worker ends with the same bits. Raises SettingError("scheme.collective") for an unknown
    name.
    """
    if name not in _COLLECTIVES:
        known = ", ".join(COLLECTIVES)
        raise SettingError("scheme.collective", f"there is no {name}; there are: {known}")
    return _COLLECTIVES[name]
