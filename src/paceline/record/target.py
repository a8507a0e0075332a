"""Settings from which Hydra builds an object of the class that they name."""

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.resources import files
from importlib.util import find_spec
from typing import Any, TypeVar, cast

from hydra.utils import instantiate

from paceline.errors import SettingError
from paceline.model.one_lightning import use_one_lightning

T = TypeVar("T")

# Classes that have moved. Settings name them as before, since the names are part of keys.
MOVED = {
    "paceline.measurement.measurement.Measurement": "paceline.record.measurement.Measurement",
    "paceline.scheme.mixed.Mixed": "paceline.scheme.async_parameter_server.AsyncParameterServer",
}

GROUPS = ("model", "data", "scheme", "cluster", "workload", "training", "measurement", "sweep")
_OWN = "paceline."
_NAMED = re.compile(r"^ *_target_: *([\w.]+)", re.MULTILINE)


@cache
def own_classes(group: str) -> frozenset[str]:
    """Return the classes that Paceline's own files of a group of settings name as `_target_`."""
    if group not in GROUPS:
        return frozenset()
    folders, texts = [files("paceline") / "conf" / group], list[str]()
    for folder in folders:
        for each in folder.iterdir():
            if each.is_dir():
                folders.append(each)
            elif each.name.endswith(".yaml"):
                texts.append(each.read_text())
    return frozenset(name for text in texts for name in _NAMED.findall(text))


def foreign_target(values: Mapping[str, Any], *, any_package: bool) -> str | None:
    """Return why a `_target_` in the settings of a record is refused; None if there is none.

    Only the classes of `own_classes` of the group are allowed, and with `any_package` also classes
    that are not part of this project; those are named in records, but must not be built from them.
    """
    for group, settings in values.items():
        for where, target in _targets(group, settings):
            is_foreign = any_package and not str(target).startswith(_OWN)
            if not is_foreign and str(target) not in own_classes(group):
                return f"{where}: {target} is not a class of conf/{group}"
    return None


@dataclass(frozen=True)
class Target:
    """A group of settings: `_target_` names a class or function, all other settings are arguments.

    `group`: name of the group on the command line. `values`: the settings of the group, by name.
    `of_record`: True if they were read from a record, from which only classes of Paceline's own
    files of the group are built.
    """

    group: str
    values: Mapping[str, Any]
    of_record: bool = False

    @property
    def is_ours(self) -> bool:
        """True if the class belongs to this project."""
        return str(self.values.get("_target_", "")).startswith(_OWN)

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
        """Build the object.

        Raises SettingError for arguments that its constructor refuses, and for another class than
        a record may name.
        """
        target = self.values.get("_target_")
        if not isinstance(target, str):
            raise SettingError(f"{self.group}._target_", "a class is needed, package.module.Class")
        if self.of_record:
            foreign = foreign_target({self.group: self.values}, any_package=False)
            if foreign is not None:
                raise SettingError(*foreign.split(": ", 1))
        use_one_lightning()
        try:
            return self._built(MOVED.get(target, target))
        except SettingError:
            raise
        except Exception as error:
            if isinstance(error.__cause__, SettingError):
                raise error.__cause__ from error
            raise SettingError(self.group, str(error)) from error

    def _built(self, target: str) -> Any:
        words = [name for name in self.values if str(name).startswith("_")]
        is_own = self.values["_target_"] in own_classes(self.group)
        if not is_own or words != ["_target_"] or len([*_targets("", self.values)]) > 1:
            return instantiate({**self.values, "_target_": target}, _convert_="all")
        module, _, name = target.rpartition(".")  # as Hydra does it, which takes 2 ms
        values = {name: deepcopy(self.values[name]) for name in self.values if name not in words}
        return getattr(import_module(module), name)(**values)

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
    elif isinstance(value, list):
        for inner in cast("list[Any]", value):
            yield from _targets(name, inner)
