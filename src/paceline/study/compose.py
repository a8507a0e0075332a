"""A point's configuration from conf/ and settings as on the command line, without running it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, open_dict

from paceline.record.point_config import PointConfig
from paceline.study.hydra_error import hydra_errors


def composed(overrides: Sequence[str], root: Path) -> PointConfig:
    """Compose a point. `root`: the folder of conf/ and experiments/.

    Raises SettingError for what is unknown.
    """
    with hydra_errors("settings"), composer(root) as compose_job:
        return PointConfig.of(as_in_a_run(compose_job(overrides)))


@contextmanager
def composer(root: Path) -> Iterator[Callable[[Sequence[str]], DictConfig]]:
    """Yields what composes overrides with conf/ and experiments/ of `root`, Hydra's own settings
    included, wherever the working directory is. What Hydra knows of this process is kept."""
    instance = HydraConfig.instance()
    before = instance.cfg
    search = f"hydra.searchpath=['file://{root.absolute()}']"
    try:
        with initialize_config_dir(str((root / "conf").absolute()), version_base="1.3"):
            yield lambda job: compose("config", [search, *job], return_hydra_config=True)
    finally:
        instance.cfg = before


def as_in_a_run(cfg: DictConfig) -> DictConfig:
    """Take Hydra's own settings out of `cfg`, where names.* still find them; returns `cfg`.

    Within `composer`, and for one configuration at a time: names.* find the latest.
    """
    HydraConfig.instance().set_config(cfg)
    with open_dict(cfg):
        del cfg["hydra"]
    return cfg
