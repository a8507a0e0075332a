"""Configurations for the benchmarks, composed from conf/ as the command line does."""

from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from omegaconf import open_dict

from paceline.training.point import plain_config

ROOT = Path(__file__).parent.parent


def config(*overrides: str) -> dict[str, Any]:
    search = f"hydra.searchpath=['file://{ROOT}']"
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        cfg = compose("config", [search, *overrides], return_hydra_config=True)
    HydraConfig.instance().set_config(cfg)
    with open_dict(cfg):
        del cfg["hydra"]
    return plain_config(cfg)
