"""Settings that Hydra makes an object of."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import instantiate

from paceline.errors import SettingError


@dataclass(frozen=True)
class Target:
    """A group of settings: `_target_`, the class or function that it is, and its arguments.

    `group`: its name on the command line.
    """

    group: str
    values: Mapping[str, Any]

    @property
    def is_ours(self) -> bool:
        """Whether the project itself brings the class."""
        return str(self.values.get("_target_", "")).startswith("paceline.")

    def part(self, name: str) -> "Target":
        """Return one of the arguments that is a target itself."""
        return Target(f"{self.group}.{name}", self.values[name])

    def build(self) -> Any:
        """Make the object. Raises SettingError for what its constructor refuses."""
        if not isinstance(self.values.get("_target_"), str):
            raise SettingError(f"{self.group}._target_", "a class is needed, package.module.Class")
        try:
            return instantiate(dict(self.values), _convert_="all")
        except InstantiationException as error:
            if isinstance(error.__cause__, SettingError):
                raise error.__cause__ from error
            raise SettingError(self.group, str(error)) from error

    def build_as(self, kind: type, name: str) -> Any:
        """Make the object, which must be a `kind`; `name`: of the kind, for the message."""
        made = self.build()
        if not isinstance(made, kind):
            message = f"{type(made).__name__} is no {name}"
            raise SettingError(f"{self.group}._target_", message)
        return made
