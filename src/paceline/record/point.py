"""A point: one resolved configuration, named by the hash of its content."""

import hashlib
import json
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

_UNKEYED = ("study", "question", "names", "experiments", "grids", "tuning", "sweep")
_UNKEYED += ("measurement.mlflow",)
# Of these the content is verified, so that the folder does not matter; of others it is the data.
_VERIFIED_DATA = tuple(f"paceline.data.{name}" for name in ("fashion_mnist", "cifar", "synthetic"))


def plain_config(cfg: DictConfig) -> dict[str, Any]:
    """The resolved configuration as plain values, without Hydra's own settings."""
    config = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
    assert isinstance(config, dict)
    config.pop("hydra", None)
    return {str(name): value for name, value in config.items()}


def point_key(config: dict[str, Any]) -> str:
    """12 hexadecimal digits of the content of `config`, without names, paths and logging.

    The folder of an ImageFolder, and of anybody's data, counts: it says which images they are.
    """
    content = json.loads(json.dumps(config))
    verified = content["data"]["_target_"].startswith(_VERIFIED_DATA)
    for path in (*_UNKEYED, "data.root") if verified else _UNKEYED:
        *parents, leaf = path.split(".")
        holder = content
        for parent in parents:
            holder = holder.get(parent, {})
        holder.pop(leaf, None)
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def record_folder(config: dict[str, Any]) -> Path:
    """Where the record of this point is, or will be: `runs/<study>/<key>`."""
    return Path("runs") / config["study"] / point_key(config)


def is_virtual(config: dict[str, Any]) -> bool:
    """Whether one process stands for all workers and servers."""
    return config["cluster"]["clock"] == "virtual"


def num_workers(config: dict[str, Any]) -> int:
    """Real processes that train."""
    return 1 if is_virtual(config) else config["workers"]


def num_servers(config: dict[str, Any]) -> int:
    """Real processes that serve."""
    return 0 if is_virtual(config) else config["scheme"].get("servers", 0)


def kind(config: dict[str, Any]) -> str:
    """What the numbers of the point's record are: measured, paced or virtual."""
    cluster = config["cluster"]
    if is_virtual(config):
        return "virtual"
    paced = cluster["step_seconds"] is not None or cluster["server_seconds"] > 0
    return "paced" if paced else "measured"
