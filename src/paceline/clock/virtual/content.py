"""Content of all that a virtual clock holds: weights, statistics, optimizers, messages under way,
and what suspended rules keep between two messages.
"""

import gc
from collections.abc import Iterable, Sequence
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any

from torch import Tensor

_WITHOUT_CONTENT = (type, ModuleType, BuiltinFunctionType, CodeType, FrameType)


def content_of(root: object, *, apart_from: Iterable[object] = ()) -> list[Tensor]:
    """Return each vector that can be reached from `root`, as one tensor over its whole storage.

    Vectors that share a storage are one. Their order follows from how objects refer to each other,
    and so is the same for all that came about in the same way. What can be reached
    only through `apart_from` is left out.
    """
    found: dict[int, Tensor] = {}
    seen = {id(each) for each in apart_from}
    left = [root]
    while left:
        thing = left.pop()
        if id(thing) in seen or not gc.is_tracked(thing) or isinstance(thing, _WITHOUT_CONTENT):
            continue
        seen.add(id(thing))
        if isinstance(thing, Tensor):
            _add(thing, found)
        else:
            left.extend(reversed(_referents(thing)))
    return list(found.values())


def fill_content(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> None:
    """Copy the content of others, which `content_of` has listed, into the vectors of ours.

    Raises ValueError, and copies nothing, unless there are as many of the same sizes and types.
    """
    kinds, given = ([(each.dtype, each.shape) for each in side] for side in (ours, theirs))
    if kinds != given:
        raise ValueError(f"the content has {len(given)} vectors that do not fit {len(kinds)}")
    for mine, other in zip(ours, theirs, strict=True):
        mine.copy_(other)


def _referents(thing: object) -> Sequence[Any]:
    """List what an object refers to: a suspended generator to all that its frame holds, a function
    to what it encloses.
    """
    return thing.__closure__ or () if isinstance(thing, FunctionType) else gc.get_referents(thing)


def _add(tensor: Tensor, found: dict[int, Tensor]) -> None:
    storage = tensor.untyped_storage()
    if storage.nbytes():
        shape = (storage.nbytes() // tensor.element_size(),)
        found.setdefault(storage.data_ptr(), tensor.new_empty(0).set_(storage, 0, shape, (1,)))
