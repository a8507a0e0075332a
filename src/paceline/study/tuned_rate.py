"""Learning rate and momentum by `training.rate`: as they are set, or of the study's best trial.

The trials of a configuration differ from it by rate, momentum and seed. What was chosen is not
stored: composing a tuned point reads the records of its trials.
"""

from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from paceline.errors import SettingError
from paceline.record.point_config import PointConfig
from paceline.record.reading import read_result
from paceline.study.abstract_tuning import AbstractTuning, Trial
from paceline.study.listed_rates import ListedRates
from paceline.study.quasi_random import QuasiRandomSearch

RATES = ("by_rule", "tuned")


def read_tuning(setting: Any) -> AbstractTuning:
    """Read the setting `tuning` from plain values. Raises SettingError for an invalid one."""
    if not isinstance(setting, Mapping):
        raise SettingError("tuning", f"a search, or values and a seed, is needed, not {setting!r}")
    named = {str(name): value for name, value in setting.items()}
    return ListedRates(**named) if "values" in named else QuasiRandomSearch(**named)


def trial_config(cfg: DictConfig, trial: Trial, at: Mapping[str, Any]) -> PointConfig:
    """Return the point that `trial` is of the configuration of `cfg`, with the settings of `at`."""
    tried = deepcopy(cfg)
    _put(tried, trial)
    for name, value in at.items():
        try:
            OmegaConf.update(tried, name, value)
        except OmegaConfBaseException as error:
            raise SettingError("tuning.at", f"there is no setting {name}") from error
    return PointConfig.of(tried)


class Rates:
    """Rates of points, for which the records of each configuration's trials are read once.

    `root`: folder of runs/.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._best: dict[str, Trial | None] = {}  # by the key of a configuration's first trial

    def set_rate(self, cfg: DictConfig) -> bool:
        """Put the rate of `trial`, or if `training.rate` is tuned that of the best, into `cfg`.

        Returns False, and puts None there, if a trial of this configuration has no record. Raises
        SettingError for an unknown rate and for an invalid tuning.
        """
        if cfg.trial is not None:
            _put(cfg, _read_trial(cfg.trial))
            return True
        rate = cfg.training.rate
        if rate not in RATES:
            raise SettingError("training.rate", f"{rate!r}; there are: {', '.join(RATES)}")
        return rate == "by_rule" or self._set_best(cfg)

    def _set_best(self, cfg: DictConfig) -> bool:
        if cfg.tuning is None:
            raise SettingError("training.rate", "tuned, but the study has no tuning")
        tuning = read_tuning(OmegaConf.to_container(cfg.tuning, resolve=True))
        best = self._best_of(cfg, tuning)
        for name, value in (best.settings if best else dict.fromkeys(tuning.names)).items():
            OmegaConf.update(cfg, name, value)
        return best is not None

    def _best_of(self, cfg: DictConfig, tuning: AbstractTuning) -> Trial | None:
        key = trial_config(cfg, tuning.first[0], tuning.at).key
        if key not in self._best:
            self._best[key] = tuning.tried(
                lambda trial: read_result(self._root / trial_config(cfg, trial, tuning.at).folder)
            ).best
        return self._best[key]


def _read_trial(setting: Any) -> Trial:
    if not isinstance(setting, DictConfig):
        raise SettingError("trial", f"lr, momentum and seed are needed, not {setting!r}")
    return Trial(**{str(name): value for name, value in setting.items()})


def _put(cfg: DictConfig, trial: Trial) -> None:
    cfg.training.rate, cfg.seed = "by_rule", trial.seed
    for name, value in trial.settings.items():
        OmegaConf.update(cfg, name, value)
