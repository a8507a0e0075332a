"""A point's settings as Hydra composed them: the boundary between YAML and typed points."""

import hashlib
import importlib.util
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from paceline.measurement.measurement import Measurement
from paceline.record.rerun import Sweep
from paceline.record.target import Target

_UNKEYED = ("study", "question", "names", "experiments", "grids", "tuning", "sweep")
_UNKEYED += ("measurement.mlflow",)


@dataclass(frozen=True)
class PointConfig:
    """Plain values, all interpolations resolved. Names a point; `record/point.py` makes it."""

    values: Mapping[str, Any]

    @classmethod
    def of(cls, cfg: DictConfig) -> "PointConfig":
        """Resolve a composed configuration, without Hydra's own settings."""
        values = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
        assert isinstance(values, dict)
        return cls({str(name): value for name, value in values.items() if name != "hydra"})

    @cached_property
    def key(self) -> str:
        """12 hexadecimal digits of the content, without names, paths and logging.

        The folder of the data counts, unless their class says that it does not tell which images
        they are (`root_tells_content`), since it verifies what it finds.
        """
        content = json.loads(json.dumps(self.values))
        unkeyed = _UNKEYED if self._root_tells_content else (*_UNKEYED, "data.root")
        for path in unkeyed:
            *parents, leaf = path.split(".")
            holder = content
            for parent in parents:
                holder = holder.get(parent, {})
            holder.pop(leaf, None)
        canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]

    @property
    def _root_tells_content(self) -> bool:
        """Ask the data set of the project; anybody else's is not imported for this."""
        module, _, name = str(self.values["data"]["_target_"]).rpartition(".")
        if not self.data.is_ours or importlib.util.find_spec(module) is None:
            return True
        return getattr(getattr(importlib.import_module(module), name), "root_tells_content", True)

    @property
    def folder(self) -> Path:
        """Where the record of this point is, or will be: `runs/<study>/<key>`."""
        return Path("runs") / self.study / self.key

    @property
    def study(self) -> str:
        return self.values["study"]

    @property
    def question(self) -> str | None:
        return self.values["question"]

    @property
    def names(self) -> dict[str, str]:
        """The chosen files of data, model, scheme and cluster."""
        return self.values["names"]

    @property
    def seed(self) -> int:
        return self.values["seed"]

    @property
    def lr(self) -> float | None:
        """The base rate; None while it waits for the study's tuning."""
        return self.values["training"]["lr"]

    @property
    def is_tuned(self) -> bool:
        return self.values["training"]["rate"] == "tuned"

    @property
    def tuning(self) -> Any:
        return self.values["tuning"]

    @property
    def data(self) -> Target:
        return Target("data", self.values["data"])

    @property
    def sweep(self) -> Sweep:
        return Target("sweep", self.values["sweep"]).build_as(Sweep, "sweep")

    @property
    def measurement(self) -> Measurement:
        group = Target("measurement", self.values["measurement"])
        return group.build_as(Measurement, "measurement")

    def replaced(self, **values: Any) -> "PointConfig":
        """The same with other values at the top."""
        return PointConfig({**self.values, **values})
