"""Composition of a point's configuration from conf/ and settings as on the command line."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from hydra import compose, initialize_config_dir
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, open_dict

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
    search = f"hydra.searchpath=['file://{root.absolute()}','pkg://paceline.conf']"
    try:
        with initialize_config_dir(str((root / "conf").absolute()), version_base="1.3"):
            yield partial(_composed, search)
    finally:
        instance.cfg = before


def _composed(search: str, job: Sequence[str]) -> DictConfig:
    check_groups(job)
    return compose("config", [search, *job], return_hydra_config=True)


def as_in_a_run(cfg: DictConfig) -> DictConfig:
    """Remove Hydra's own settings from `cfg` and register them for names.*; return `cfg`.

    Call it within `composer`, and resolve `cfg` before the next call: names.* refer to the latest
    registered settings.
    """
    HydraConfig.instance().set_config(cfg)
    with open_dict(cfg):
        del cfg["hydra"]
    return cfg
