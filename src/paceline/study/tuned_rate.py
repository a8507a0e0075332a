"""Learning rate by `training.rate`: as it is set, or the best of the study's tuning.

The tuning points of a configuration differ from it by `tuning.seed` and by the rate, one of
`tuning.values`. The tuned rate is not stored: composing a tuned point reads their records.
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from paceline.errors import SettingError
from paceline.record.point_config import PointConfig
from paceline.record.record import Result, read_result

RATES = ("by_rule", "tuned")


@dataclass(frozen=True)
class Tuning:
    """Tuning of a study. `values`: learning rates to compare. `seed`: seed of its points."""

    values: tuple[float, ...]
    seed: int

    def overrides(self) -> list[str]:
        """Return the overrides that turn the points of a study into its tuning points."""
        values = ",".join(map(repr, self.values))
        return ["training.rate=by_rule", f"training.lr={values}", f"seed={self.seed}"]


def read_tuning(setting: Any) -> Tuning:
    """Read the setting `tuning` from plain values. Raises SettingError for an invalid one."""
    if not isinstance(setting, Mapping) or setting.keys() != {"values", "seed"}:
        raise SettingError("tuning", f"values and seed are needed, not {setting!r}")
    values, seed = setting["values"], setting["seed"]
    if not isinstance(values, list) or not values or not all(map(_is_rate, values)):
        raise SettingError("tuning.values", f"numbers above 0 in [] are needed, not {values!r}")
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise SettingError("tuning.seed", f"a whole number of at least 0 is needed, not {seed!r}")
    return Tuning(tuple(dict.fromkeys(values)), seed)


def set_rate(cfg: DictConfig, root: Path) -> bool:
    """Put the tuned rate into `training.lr` of `cfg`, if `training.rate` is tuned.

    `root`: folder of runs/. Returns False, and puts None there, if a tuning point of this
    configuration has no record. Raises SettingError for an unknown rate and for an invalid tuning.
    """
    rate = cfg.training.rate
    if rate not in RATES:
        raise SettingError("training.rate", f"{rate!r}; there are: {', '.join(RATES)}")
    if rate == "by_rule":
        return True
    if cfg.tuning is None:
        raise SettingError("training.rate", "tuned, but the study has no tuning: values and seed")
    tuning = read_tuning(OmegaConf.to_container(cfg.tuning, resolve=True))
    cfg.training.lr = best_rate({v: _result(cfg, root, v, tuning.seed) for v in tuning.values})
    return cfg.training.lr is not None


def best_rate(results: Mapping[float, Result | None]) -> float | None:
    """Return the rate with the best final top-1 on validation.

    `results`: result.json by rate. A point that diverged or failed is worse than any other; of
    equals the smaller rate is taken. Returns None if a record is missing.
    """
    scores = [(_score(result), -rate) for rate, result in results.items() if result is not None]
    return -max(scores)[1] if len(scores) == len(results) else None


def _score(result: Result) -> float:
    return result["top1"] if result["status"] == "finished" else -1.0


def _result(cfg: DictConfig, root: Path, value: float, seed: int) -> Result | None:
    point = deepcopy(cfg)
    point.training.rate, point.training.lr, point.seed = "by_rule", value, seed
    return read_result(root / PointConfig.of(point).folder)


def _is_rate(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < inf
