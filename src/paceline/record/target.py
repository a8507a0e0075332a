"""Settings from which Hydra builds an object of the class that they name."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, TypeVar, cast

from hydra.errors import InstantiationException
from hydra.utils import instantiate

from paceline.errors import SettingError
from paceline.model.one_lightning import use_one_lightning

T = TypeVar("T")

# Classes that have moved. Settings name them as before, since the names are part of keys.
_MOVED = {"paceline.measurement.measurement.Measurement": "paceline.record.measurement.Measurement"}


@dataclass(frozen=True)
class Target:
    """A group of settings: `_target_` names a class or function, all other settings are arguments.

    `group`: name of the group on the command line. `values`: the settings of the group, by name.
    """

    group: str
    values: Mapping[str, Any]

    @property
    def is_ours(self) -> bool:
        """True if the class belongs to this project."""
        return str(self.values.get("_target_", "")).startswith("paceline.")

    def part(self, name: str) -> "Target":
        """Return an argument that is itself a target."""
        return Target(f"{self.group}.{name}", self.values[name])

    def check(self) -> None:
        """Raise SettingError if a `_target_`, also of an inner group, is in no installed package.

        Nothing is imported, because importing a user's network takes seconds.
        """
        for where, target in _targets(self.group, self.values):
            if not isinstance(target, str) or "." not in target:
                raise SettingError(where, "a class is needed, package.module.Class")
            package = target.partition(".")[0]
            if find_spec(package) is None:
                raise SettingError(where, f"the package {package} is not installed")

    def build(self) -> Any:
        """Build the object. Raises SettingError for arguments that its constructor refuses."""
        if not isinstance(self.values.get("_target_"), str):
            raise SettingError(f"{self.group}._target_", "a class is needed, package.module.Class")
        use_one_lightning()
        try:
            target = self.values["_target_"]
            moved = {**self.values, "_target_": _MOVED.get(target, target)}
            return instantiate(moved, _convert_="all")
        except InstantiationException as error:
            if isinstance(error.__cause__, SettingError):
                raise error.__cause__ from error
            raise SettingError(self.group, str(error)) from error

    def build_as(self, kind: type[T]) -> T:
        """Build the object. Raises SettingError if it is not a `kind`."""
        built = self.build()
        if not isinstance(built, kind):
            message = f"{type(built).__name__} is not a {self.group}"
            raise SettingError(f"{self.group}._target_", message)
        return built


def _targets(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the place and the value of each `_target_` in a tree of settings."""
    if isinstance(value, Mapping):
        for part, inner in cast("Mapping[str, Any]", value).items():
            where = f"{name}.{part}"
            yield from [(where, inner)] if part == "_target_" else _targets(where, inner)
