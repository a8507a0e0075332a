"""Collectives by name, found in exchange/collective/, and the compressions of gradients."""

import importlib
import pkgutil
from functools import cache
from typing import Literal, get_args

from paceline.errors import SettingError
from paceline.exchange import collective as folder
from paceline.exchange.abstract_collective import AbstractCollective

Compression = Literal["none", "fp16", "bf16", "power_sgd", "one_bit"]
COMPRESSIONS: tuple[Compression, ...] = get_args(Compression)


def collective_names() -> tuple[str, ...]:
    """Return the names of all collectives in alphabetical order."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(folder.__path__)))


def collective(name: str) -> AbstractCollective:
    """Return a collective. Raises SettingError("scheme.collective") for an unknown name."""
    if name not in collective_names():
        known = ", ".join(collective_names())
        raise SettingError("scheme.collective", f"there is no {name}; there are: {known}")
    return _load(name)


@cache
def _load(name: str) -> AbstractCollective:
    module = importlib.import_module(f"{folder.__name__}.{name}")
    declared = [
        member
        for member in vars(module).values()
        if isinstance(member, type)
        and issubclass(member, AbstractCollective)
        and member.__module__ == module.__name__
    ]
    if len(declared) != 1:
        raise TypeError(f"{module.__name__} must declare one collective, not {len(declared)}")
    return declared[0]()


def check_compression(compression: str, collective: str) -> None:
    """Raise SettingError("scheme.compression") if the collective cannot have this compression."""
    if compression not in COMPRESSIONS:
        known = ", ".join(COMPRESSIONS)
        raise SettingError("scheme.compression", f"there is no {compression}; there are: {known}")
    if compression == "power_sgd" and collective != "native":
        message = f"power_sgd sums its factors by native all-reduce, not {collective}"
        raise SettingError("scheme.compression", message)
