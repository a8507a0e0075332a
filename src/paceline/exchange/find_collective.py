"""Collectives by name, found in exchange/collective/."""

import importlib
import pkgutil
from functools import cache

from paceline.errors import SettingError
from paceline.exchange import collective as folder
from paceline.exchange.abstract_collective import AbstractCollective


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
