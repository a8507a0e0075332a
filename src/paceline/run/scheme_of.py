"""A point's scheme, built from its settings."""

from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import instantiate

from paceline.errors import SettingError
from paceline.scheme.accounting import Accounting
from paceline.scheme.rule import AbstractScheme


def scheme_of(config: dict[str, Any]) -> AbstractScheme:
    """Raises SettingError for settings that make no scheme, or none for so many workers."""
    scheme = _built(config["scheme"])
    Accounting(scheme, config["workers"])  # refuses what cannot have so many workers
    return scheme


def _built(settings: dict[str, Any]) -> AbstractScheme:
    try:
        scheme = instantiate(settings)
    except InstantiationException as error:
        if isinstance(error.__cause__, SettingError):
            raise error.__cause__ from error
        raise SettingError("scheme", str(error)) from error
    if not isinstance(scheme, AbstractScheme):
        raise SettingError("scheme._target_", f"{type(scheme).__name__} is no scheme")
    return scheme
