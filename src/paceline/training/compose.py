"""A point's configuration from conf/ and settings as on the command line, without running it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from omegaconf import open_dict

from paceline.training.hydra_error import hydra_errors
from paceline.training.point import plain_config


def composed(overrides: Sequence[str], root: Path) -> dict[str, Any]:
    """`root`: the folder of conf/ and experiments/. Raises SettingError for what is unknown."""
    instance = HydraConfig.instance()
    before = instance.cfg
    conf = str((root / "conf").absolute())
    search = f"hydra.searchpath=['file://{root.absolute()}']"
    try:
        with hydra_errors("settings"), initialize_config_dir(conf, version_base="1.3"):
            cfg = compose("config", [search, *overrides], return_hydra_config=True)
            instance.set_config(cfg)  # names.* ask it
            with open_dict(cfg):
                del cfg["hydra"]
            return plain_config(cfg)
    finally:
        instance.cfg = before
