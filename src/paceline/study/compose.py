"""Composes the configurations of points from files in conf/ and from overrides.

An override is a setting as on the command line, such as workers=2.
"""

import json
import pickle
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import chdir, contextmanager
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Glob, Override, OverrideType
from hydra.errors import ConfigCompositionException, HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    InterpolationKeyError,
    MissingMandatoryValue,
    OmegaConfBaseException,
)

from paceline.errors import SettingError, did_you_mean
from paceline.record.point_config import PointConfig
from paceline.record.provenance import num_cores
from paceline.record.target import GROUPS

CONFIG = "config"  # the file of conf/ with which Hydra begins
_FOLDERS = ("hydra.run.dir", "hydra.sweep.dir", "hydra.sweep.subdir", "hydra.output_subdir")


def _divided(value: int, by: int) -> int:
    if value % by:
        raise ValueError(f"{value} cannot be divided by {by}")
    return value // by


def _per(*keys_and_table: Any) -> Any:
    """Return the value of a nested table at the keys before it: ${per:b,2,{a:{1:5},b:{1:6,4:7}}}.

    A number that the table lacks has the value of the next smaller one: 6 in the example.
    """
    *keys, table = keys_and_table
    for key in keys:
        smaller = [each for each in table if isinstance(each, int) and each <= key]
        if key not in table and not smaller:
            known = ", ".join(map(str, table))
            raise ValueError(f"the study has no value for {key}; there are: {known}")
        table = table[key if key in table else max(smaller)]
    return table


def _here(what: str) -> str | ChoiceSweep:
    """Return a fact of this machine, for a study that uses as much of it as there is.

    `accelerator`: gpu if there are several GPUs, else cpu. `workers`: the powers of 2 up to the
    number of GPUs or cores, and up to 2 at least. `several_workers`: the same without 1.
    """
    from paceline.cluster.cluster import num_gpus  # pydantic takes time

    gpus = num_gpus()
    if what == "accelerator":
        return "gpu" if gpus > 1 else "cpu"
    most = gpus if gpus > 1 else num_cores()
    powers = [2**power for power in range(max(2, most.bit_length()))]
    return ChoiceSweep(list={"workers": powers, "several_workers": powers[1:]}[what])


def _chosen(group: str) -> str | None:
    """Return the name of the chosen file of a group; None in a program that does not keep it.

    DVC is such a program: it composes params.yaml, but without Hydra's own settings.
    """
    return HydraConfig.get().runtime.choices[group] if HydraConfig.initialized() else None


OmegaConf.register_new_resolver("chosen", _chosen, replace=True)
OmegaConf.register_new_resolver("divided", _divided, replace=True)
OmegaConf.register_new_resolver("per", _per, replace=True)
OmegaConf.register_new_resolver("times", lambda number, by: number * by, replace=True)


def composed(overrides: Sequence[str], root: Path) -> PointConfig:
    """Return the configuration of a point. `root`: folder that has conf/ and experiments/.

    Raises SettingError for unknown settings.
    """
    with hydra_errors("settings"), composer(root) as compose_job:
        return PointConfig.of(compose_job(overrides).cfg)


def copied(cfg: DictConfig) -> DictConfig:
    """Return a copy of a whole configuration, three times as fast as a deep copy."""
    return pickle.loads(pickle.dumps(cfg))


class Swept(NamedTuple):
    """Configuration for one combination of swept values. `swept`: these values, by setting."""

    swept: Mapping[str, str]
    config: PointConfig


Further = Callable[[Sequence[str], PointConfig], list[str]]


def composed_each(
    overrides: Sequence[str], root: Path, further: Sequence[Further] = ()
) -> list[Swept]:
    """Return a configuration for each combination of the values that overrides list.

    For example, workers=1,2 seed=1,2 gives four configurations. Each of `further` returns the
    settings that follow from a combination and its configuration, in the order of `further`.

    Raises SettingError for unknown settings.
    """
    with hydra_errors("settings"), composer(root) as compose_job:
        axes = parsed(overrides)
        swept = {axis.get_key_element() for axis in axes if axis.is_sweep_override()}
        found = list[Swept]()
        for job in jobs_of(axes):
            values = dict(setting.split("=", 1) for setting in job)
            config = PointConfig.of(compose_job(job).cfg)
            for follow in further:
                if more := follow(job, config):
                    job = [*job, *more]
                    config = PointConfig.of(compose_job(job).cfg)
            found.append(Swept({k: v for k, v in values.items() if k in swept}, config))
        return found


def parsed(overrides: Sequence[str]) -> list[Override]:
    """Parse overrides, whose values may also be facts of this machine, here(...)."""
    parser = OverridesParser.create()
    parser.functions.register("here", _here)
    return parser.parse_overrides(list(overrides))


def jobs_of(axes: Sequence[Override]) -> list[list[str]]:
    """Return the overrides of each combination of the values that `axes` list.

    An axis is an override with one or several values. The value of the first axis changes most
    slowly. If two axes have the same setting, the later one counts, at the position of the first.
    """
    texts = dict[str, list[str]]()
    for axis in axes:
        name = axis.get_key_element()
        if not axis.is_sweep_override():
            values = [axis.get_value_element_as_str()]
        elif axis.is_discrete_sweep() and not isinstance(axis.value(), Glob):
            values = axis.sweep_string_iterator()
        else:
            message = "a list of values is needed; only other sweepers can search an interval, and "
            message += "no names of files match a pattern"
            raise SettingError(name, message)
        texts[name] = [f"{name}={value}" for value in values]
    return [list(job) for job in product(*texts.values())]


class Composed(NamedTuple):
    """Settings of a point before interpolations are resolved, without Hydra's own settings.

    `choices`: for each group of conf/, the name of the file that is chosen.
    """

    cfg: DictConfig
    choices: Mapping[str, str]


@contextmanager
def composer(root: Path) -> Generator["Composer"]:
    """Yield a Composer for conf/ and experiments/ of `root`, the working directory inside.

    Hydra's global state is restored afterwards.
    """
    before = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        with chdir(root), initialize_config_dir(str(Path.cwd() / "conf"), version_base="1.3"):
            yield Composer()
    finally:
        GlobalHydra.instance().hydra = before


def searching_in(folder: Path, root: Path) -> str:
    """Return the override by which Hydra also reads the files of `folder`, as by --config-dir.

    A file there comes before Paceline's of the same name, and after the project's. Raises
    SettingError("--config-dir") if there is no such folder.
    """
    if not folder.is_dir():
        raise SettingError("--config-dir", f"there is no folder {folder}")
    own = OmegaConf.select(OmegaConf.load(root / "conf" / f"{CONFIG}.yaml"), "hydra.searchpath")
    places = [f"file://{folder}", *(own or ())]
    return f"hydra.searchpath=[{','.join(map(json.dumps, places))}]"


def _of_torchvision(job: Sequence[str]) -> set[str]:
    """Return those overrides model=NAME that name a network of torchvision."""
    from paceline.model.network import network_names  # seconds

    return {*job} & {f"model={name}" for name in network_names()}


class Composer:
    """Composes configurations, five times as fast as Hydra, which reads all files each time.

    Hydra composes once for each choice of files; values of settings are set in copies of this.
    """

    def __init__(self) -> None:
        self._networks = set[str]()  # overrides that name one of torchvision, and no file
        self._groups = set[str]()  # in which a file is chosen; none before Hydra has composed
        self._bases = dict[tuple[str, ...], Composed]()  # by the overrides that Hydra got

    def with_hydra(self, overrides: Sequence[str]) -> DictConfig:
        """Compose a configuration that includes Hydra's own settings."""
        check_groups(overrides)
        cfg = compose(CONFIG, list(overrides), return_hydra_config=True)
        self._groups |= cfg.hydra.runtime.choices.keys()
        return cfg

    def __call__(self, job: Sequence[str]) -> Composed:
        """Compose the configuration of a point. `model` may also name a network of a library."""
        check_groups(job)
        try:
            return self._composed(job)
        except MissingConfigException as error:
            networks = set[str]()
            if (error.missing_cfg_file or "").startswith("model/"):
                networks = _of_torchvision(job) - self._networks
            if not networks:
                raise
            self._networks |= networks
            return self._composed(job)

    def _composed(self, given: Sequence[str]) -> Composed:
        job = list[str]()
        for word in given:
            network = f"model.network.name={word.partition('=')[2]}"
            job += ["model=torchvision", network] if word in self._networks else [word]
        overrides = parsed(job)
        for each in overrides:
            if each.is_sweep_override():
                raise SettingError(each.get_key_element(), "several values need --multirun")
        values = [each for each in overrides if self._is_value(each)]
        if any(each.type != OverrideType.CHANGE for each in overrides):  # in the order as given
            values = []
            self._check_added(overrides)
        files = tuple(word for word, each in zip(job, overrides, strict=True) if each not in values)
        if files not in self._bases:
            self._bases[files] = _without_hydra(self.with_hydra(files))
        base = self._bases[files]
        cfg = copied(base.cfg)
        for each in values:
            OmegaConf.update(cfg, each.key_or_group, each.value())
        return Composed(cfg, base.choices)

    def _check_added(self, overrides: Sequence[Override]) -> None:
        """Raise SettingError for +NAME=VALUE or ++NAME=VALUE if no setting has the first part of
        this name, and no other override refers to it.
        """
        added = [each for each in overrides if each.is_add() or each.is_force_add()]
        known = {*map(str, self(()).cfg), "hydra"} if added else set[str]()
        for each in added:
            name = re.split("[./@]", each.key_or_group)[0]
            is_used = any(f"${{{name}" in str(other.input_line) for other in overrides)
            if name not in known and not is_used:
                close = did_you_mean(name, known)
                raise SettingError(each.key_or_group, f"there is no such setting{close}")

    def _is_value(self, override: Override) -> bool:
        """Return True if `override` sets a value, and chooses no file."""
        group = override.key_or_group
        is_file = group in self._groups or "/" in group or group.startswith("hydra.")
        return bool(self._groups) and not is_file and override.package is None


def _without_hydra(cfg: DictConfig) -> Composed:
    """Remove Hydra's own settings from `cfg`, and the study's grids, which describe other points.

    The names of the chosen files, which follow from Hydra's settings, are set.
    """
    choices = dict(cfg.hydra.runtime.choices)
    with open_dict(cfg):
        del cfg["hydra"]
    cfg.grids = None
    cfg.names = {group: choices[group] for group in cfg.names}
    return Composed(cfg, choices)


@contextmanager
def hydra_errors(setting: str) -> Generator[None]:
    """Raise SettingError in place of errors of Hydra inside, and of files that are no YAML; see
    `as_setting_error`.
    """
    try:
        yield
    except (HydraException, OmegaConfBaseException, yaml.YAMLError) as error:
        raise as_setting_error(error, setting) from error


def as_setting_error(error: Exception, setting: str) -> SettingError:
    """Return a SettingError for an error of Hydra or OmegaConf.

    `setting`: name of the setting that is wrong, in case the error does not tell it.
    """
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options:
        group, _, name = error.missing_cfg_file.rpartition("/")
        options, known = list(error.options), ", ".join(error.options)
        kind = ""
        if group == "model":
            from paceline.model.network import network_names

            if name in network_names():
                message = f"write {name} as model=torchvision model.network.name={name} here"
                return SettingError(group, message)
            options += network_names()
            kind = "network "
            known += "; for any network of torchvision, model=<its name>"
        message = f"there is no {kind}{name}{did_you_mean(name, options)}; there are: {known}"
        return SettingError(group, message)
    if isinstance(error, ConfigCompositionException) and isinstance(error.__cause__, Exception):
        error = error.__cause__
    setting = getattr(error, "full_key", None) or setting
    if isinstance(error, ConfigKeyError | ConfigAttributeError):
        known = [*map(str, getattr(error, "parent_node", None) or ())]
        close = did_you_mean(setting.rpartition(".")[2], known)
        return SettingError(setting, f"there is no such setting{close}")
    if isinstance(error, InterpolationKeyError):
        return SettingError(setting, _unresolved(error))
    if isinstance(error, MissingMandatoryValue):
        return SettingError(setting, "a value is needed")
    message = str(error).partition("\n    full_key: ")[0]  # after it, words on OmegaConf's classes
    return SettingError(setting, message.rpartition("raised while resolving interpolation: ")[2])


def _unresolved(error: InterpolationKeyError) -> str:
    """Return what to write for a setting that refers to one that no file has, as ${data.shape}."""
    missing = str(error).split("'")[1]
    group, _, name = missing.rpartition(".")
    root = error.parent_node._get_root() if error.parent_node is not None else None
    chosen = OmegaConf.select(root, f"names.{group}") if root is not None and group else None
    place = f"conf/{group}/{chosen}.yaml" if chosen else "a file of conf/"
    return f"it refers to {missing}, which there is not; write {name}: VALUE into {place}"


def check_groups(overrides: Sequence[str]) -> None:
    """Raise SettingError for a setting without a name, for a group that is set to null or a number,
    and for names, grids or folders, which cannot be set.
    """
    for setting, _, value in (word.partition("=") for word in overrides):
        name = setting.lstrip("+~")
        if not name.strip():
            raise SettingError("settings", f"a name is needed, as in workers=2, not ={value}")
        if name in _FOLDERS:
            message = "it cannot be set; a record is in runs/<study>/<key>"
            raise SettingError(name, message)
        if name.partition(".")[0] == "names":
            raise SettingError(setting, "names follow from the chosen files and cannot be set")
        if name == "grids":
            message = "grids belong in a file of experiments/; use train -m a=1,2 to sweep"
            raise SettingError(setting, message)
        no_file = r"[\d.]*" if name in ("experiments", "hydra") else r"null|[\d.]*"
        if name in (*GROUPS, "experiments", "hydra") and re.fullmatch(no_file, value):
            message = f"a file of {name} is needed, not {value or 'nothing'}"
            raise SettingError(name, message)
