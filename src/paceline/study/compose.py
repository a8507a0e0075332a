"""Composition of a point's configuration from conf/ and settings as on the command line."""

import re
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import NamedTuple

from hydra import compose, initialize_config_dir
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from omegaconf import DictConfig, OmegaConf, open_dict

from paceline.record.point_config import PointConfig
from paceline.study.hydra_error import check_groups, hydra_errors


def composed(overrides: Sequence[str], root: Path) -> PointConfig:
    """Compose a point's configuration. `root`: folder of conf/ and experiments/.

    Raises SettingError for unknown settings.
    """
    with hydra_errors("settings"), composer(root) as compose_job:
        return PointConfig.of(as_in_a_run(compose_job(overrides)))


class Composed(NamedTuple):
    """Configuration of one combination of swept values; `swept`: these, by their settings."""

    swept: Mapping[str, str]
    config: PointConfig


def composed_each(overrides: Sequence[str], root: Path) -> list[Composed]:
    """Compose a configuration for each combination of values that `overrides` sweep: workers=1,2.

    Raises SettingError for unknown settings.
    """
    with hydra_errors("settings"), composer(root) as compose_job:
        axes = parsed(overrides)
        swept = {axis.get_key_element() for axis in axes if axis.is_sweep_override()}
        found = list[Composed]()
        for job in jobs_of(axes):
            values = dict(setting.split("=", 1) for setting in job)
            config = PointConfig.of(as_in_a_run(compose_job(job)))
            found.append(Composed({k: v for k, v in values.items() if k in swept}, config))
        return found


def parsed(overrides: Sequence[str]) -> list[Override]:
    return OverridesParser.create().parse_overrides(list(overrides))


def jobs_of(axes: list[Override]) -> list[list[str]]:
    """Return the overrides of each combination of the values that `axes` sweep."""
    return BasicSweeper.split_arguments(axes, max_batch_size=None)[0]


@contextmanager
def composer(root: Path) -> Generator[Callable[[Sequence[str]], DictConfig]]:
    """Yield a function that composes overrides with conf/ and experiments/ of `root`.

    Its result includes Hydra's own settings and does not depend on the working directory. Hydra's
    global configuration is restored afterwards.
    """
    instance = HydraConfig.instance()
    before = instance.cfg
    folder = re.sub(r"(\\*)('|$)", _escaped, str(root.absolute()))
    search = f"hydra.searchpath=['file://{folder}','pkg://paceline.conf']"
    try:
        with initialize_config_dir(str((root / "conf").absolute()), version_base="1.3"):
            yield _Composer(search).compose
    finally:
        instance.cfg = before


def _escaped(found: re.Match[str]) -> str:
    """Escape a quote for Hydra, to which backslashes mean something before a quote alone."""
    return found[1] * 2 + found[2].replace("'", "\\'")


class _Composer:
    """Composes configurations; one that differs from another in values alone is made of that.

    Hydra reads all files anew for each configuration, which takes five times as long.
    """

    def __init__(self, search: str) -> None:
        self._search = search
        self._choices: set[str] = set()  # groups, which decide what files are read
        self._bases: dict[tuple[str, ...], DictConfig] = {}

    def compose(self, job: Sequence[str]) -> DictConfig:
        """Compose a configuration with Hydra's settings, whose `overrides` may be another's."""
        overrides = parsed(job)
        base = self._bases.get(self._kind(overrides))
        if base is None:
            check_groups(job)
            base = compose("config", [self._search, *job], return_hydra_config=True)
            self._choices |= base.hydra.runtime.choices.keys()
            self._bases[self._kind(overrides)] = base
            return deepcopy(base)
        cfg = deepcopy(base)
        for each in overrides:
            if self._is_value(each, overrides):
                OmegaConf.update(cfg, each.key_or_group, each.value())
        return cfg

    def _kind(self, overrides: Sequence[Override]) -> tuple[str, ...]:
        """Return what configurations have in common that differ in values alone."""
        return tuple(
            each.key_or_group if self._is_value(each, overrides) else str(each.input_line)
            for each in overrides
        )

    def _is_value(self, override: Override, among: Sequence[Override]) -> bool:
        """Return True if it sets one number or text that no other of them touches."""
        key = override.key_or_group
        plain = override.type == OverrideType.CHANGE and override.package is None
        if not plain or key in self._choices or isinstance(override.value(), dict | list):
            return False
        own, others = f"{key}.", [f"{other.key_or_group}." for other in among]
        return sum(own.startswith(each) or each.startswith(own) for each in others) == 1


def as_in_a_run(cfg: DictConfig) -> DictConfig:
    """Remove Hydra's own settings from `cfg` and register them for names.*; return `cfg`.

    Call it within `composer`, and resolve `cfg` before the next call: names.* refer to the latest
    registered settings.
    """
    HydraConfig.instance().set_config(cfg)
    with open_dict(cfg):
        del cfg["hydra"]
    return cfg
