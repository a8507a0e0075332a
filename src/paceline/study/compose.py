"""Composition of a point's configuration from conf/ and settings as on the command line."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, open_dict

from paceline.record.point_config import PointConfig
from paceline.study.hydra_error import hydra_errors


def composed(overrides: Sequence[str], root: Path) -> PointConfig:
    """Compose a point's configuration. `root`: folder of conf/ and experiments/.

    Raises SettingError for unknown settings.
    """
    with hydra_errors("settings"), composer(root) as compose_job:
        return PointConfig.of(as_in_a_run(compose_job(overrides)))


@contextmanager
def composer(root: Path) -> Generator[Callable[[Sequence[str]], DictConfig]]:
    """Yield a function that composes overrides with conf/ and experiments/ of `root`.

    Its result includes Hydra's own settings and does not depend on the working directory. Hydra's
    global configuration is restored afterwards.
    """
    instance = HydraConfig.instance()
    before = instance.cfg
    search = f"hydra.searchpath=['file://{root.absolute()}']"
    try:
        with initialize_config_dir(str((root / "conf").absolute()), version_base="1.3"):
            yield lambda job: compose("config", [search, *job], return_hydra_config=True)
    finally:
        instance.cfg = before


def as_in_a_run(cfg: DictConfig) -> DictConfig:
    """Remove Hydra's own settings from `cfg` and register them for names.*; return `cfg`.

    Call it within `composer`, and resolve `cfg` before the next call: names.* refer to the latest
    registered settings.
    """
    HydraConfig.instance().set_config(cfg)
    with open_dict(cfg):
        del cfg["hydra"]
    return cfg
