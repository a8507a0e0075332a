"""Hyperparameter search of a study: the trials of each configuration, and the best of them.

Trials run before the points of the study. Of the tables, only tuning.csv has their results. A
search that has ended is read back from there, so that the points of a study stay what they are.
"""

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from paceline.errors import SettingError
from paceline.record.point_config import PointConfig
from paceline.record.report_files import damaged
from paceline.record.result import Result
from paceline.study.compose import copied
from paceline.study.study_point import StudyPoint
from paceline.study.surface_search import SurfaceSearch
from paceline.study.trials import Searched, Trial, Tried

RATES = ("by_rule", "tuned")


class Configuration:
    """Configuration of a study, with its trials; all its points get the same learning rate.

    `point`: any point of the configuration. `axes`: values of the settings that differ between
    configurations, by dotted name. `family`: the configurations that differ from this one in their
    scheme only, and itself; whoever makes them all sets it. `searches`: those that have ended.
    """

    def __init__(self, point: StudyPoint, searches: "Searches") -> None:
        scheme, tuning = _scheme(point.cfg), point.tuning
        assert tuning is not None  # since it is tuned
        decided = {"seed", "training.rate", *tuning.names(scheme), *tuning.at}
        self.axes = {name: value for name, value in point.axes.items() if name not in decided}
        self.family: Sequence[Configuration] = [self]
        self._points = dict[Trial, StudyPoint]()
        self._of, self._tuning, self._searches = point, tuning, searches
        self._scheme = scheme

    @property
    def key(self) -> str:
        """Key of the first trial, which is the same for all points of a configuration."""
        return self._point(self.first[0]).key

    @property
    def first(self) -> Sequence[Trial]:
        """The trials that do not depend on any result."""
        return self._ended.trials if self._ended else self._tuning.first(self._searched)

    @property
    def situation(self) -> str:
        """The axes but for those of the scheme, which all of a family share."""
        own = {name: value for name, value in self.axes.items() if name.split(".")[0] != "scheme"}
        return repr(own)

    @property
    def tried(self) -> Tried:
        """The trials that follow from the records as they were last read, and the best of them."""
        return self._tuning.tried(self._searched, [each._searched for each in self.family])

    @property
    def points(self) -> Mapping[Trial, StudyPoint]:
        """The points of the known trials, in the order of their runs."""
        return {trial: self._point(trial) for trial in self.tried.trials}

    @property
    def _searched(self) -> Searched:
        return Searched(self._scheme, self._result_of, self._ended)

    @cached_property
    def _ended(self) -> Tried | None:
        """The search as tuning.csv has it.

        None if it has not ended, if its settings have changed since, or if its trials have, or must
        have, other results than there.
        """
        rows = self._searches.rows_of(self.axes, self._tuning)
        chosen = [trial for trial, row in rows.items() if row.get("chosen") == "true"]
        if len(chosen) != 1:  # which a search has only when it has ended
            return None
        for trial, row in rows.items():
            point = self._point(trial)
            if point.key != row.get("key") or point.result is None or point.needs_run:
                return None
            if any(_cell(point.result.get(name)) != row.get(name) for name in ("top1", "status")):
                return None
        return Tried(tuple(rows), chosen[0], rows[chosen[0]].get("at_edge") or "")

    def refresh(self) -> None:
        for point in self._points.values():
            point.refresh()
        self.__dict__.pop("_ended", None)

    def rows(self) -> Iterator[Mapping[str, Any]]:
        """Yield a row of tuning.csv for each trial with a record."""
        tried = self.tried
        for trial, point in self.points.items():
            if point.result:
                chosen = trial == tried.best
                yield {
                    "key": point.key,
                    **self.axes,
                    "seed": trial.seed,
                    "lr": trial.lr,
                    "momentum": point.config.values["training"]["momentum"],
                    **{name: point.result.get(name) for name in ("top1", "test_top1", "status")},
                    "chance": 1 / point.config.values["data"]["num_classes"],
                    "chosen": "true" if chosen else "false",
                    "at_edge": tried.edge if chosen else "",
                    **self._tuning.own_of(self._scheme, trial),
                }

    def _result_of(self, trial: Trial) -> Result | None:
        return self._point(trial).result

    def _point(self, trial: Trial) -> StudyPoint:
        if trial not in self._points:
            config = trial_config(self._of.cfg, trial, self._tuning.at)
            names = (*self._of.overrides, f"trial={trial.override}")
            axes = {**self.axes, **trial.settings}
            of = self._of
            self._points[trial] = StudyPoint(
                config, of.cfg, axes, names, of.root, archived=of.archived
            )
        return self._points[trial]


class Searches:
    """The searches of a study in its folder of reports/: rows of tuning.csv, and their settings.

    Raises SettingError("study") for files that cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self._settings, self._rows = list[Any](), list[dict[str, str]]()
        self._table, about = folder / "tuning.csv", folder / "study.json"
        if self._table.is_file() and about.is_file():
            try:
                self._settings = json.loads(about.read_text()).get("tuning", [])
                self._rows = list(csv.DictReader(self._table.read_text().splitlines()))
            except (ValueError, AttributeError, csv.Error) as error:
                raise self._damaged(error) from error

    def rows_of(
        self, axes: Mapping[str, Any], tuning: SurfaceSearch
    ) -> dict[Trial, dict[str, str]]:
        """Return the trials of the configuration with these `axes`, in the order of their runs.

        There are none if the search had other settings than `tuning`.
        """
        if asdict(tuning) not in self._settings:
            return {}
        cells = {name: _cell(value) for name, value in axes.items()}
        rows = [row for row in self._rows if cells.items() <= row.items()]
        try:
            return {tuning.trial_of(row): row for row in rows}
        except (ValueError, KeyError, TypeError) as error:
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> SettingError:
        return damaged(self._table, f"is damaged: {error!r}", f"rm {self._table}")


def _cell(value: Any) -> str:
    return "" if value is None else str(value)


def read_tuning(setting: Any) -> SurfaceSearch:
    """Read the setting `tuning`. Raises SettingError for an invalid value."""
    if not isinstance(setting, Mapping):
        raise SettingError("tuning", f"the settings of a search are needed, not {setting!r}")
    named = {str(name): value for name, value in setting.items()}
    return SurfaceSearch(**named)


def trial_config(cfg: DictConfig, trial: Trial, at: Mapping[str, Any]) -> PointConfig:
    """Return the settings of `trial` for the configuration of `cfg`, changed by `at`."""
    tried = copied(cfg)
    _put_trial(tried, trial)
    for name, value in at.items():
        try:
            OmegaConf.update(tried, name, value)
        except OmegaConfBaseException as error:
            raise SettingError("tuning.at", f"there is no setting {name}") from error
    return PointConfig.of(tried)


def _put_trial(cfg: DictConfig, trial: Trial) -> None:
    own = {"own": [list(pair) for pair in trial.own]} if trial.own else {}
    cfg.trial = {"lr": trial.lr, "momentum": trial.momentum, "seed": trial.seed, **own}
    cfg.training.rate, cfg.seed = "by_rule", trial.seed
    for name, value in trial.settings.items():
        OmegaConf.update(cfg, name, value)


def put_best(cfg: DictConfig, tuning: SurfaceSearch, best: Trial | None) -> None:
    """Set the values of the best trial in `cfg`; set None if `best` is None (not known yet)."""
    unknown = dict.fromkeys(tuning.names(_scheme(cfg)))
    for name, value in (best.settings if best else unknown).items():
        OmegaConf.update(cfg, name, value)


def needs_tuning(cfg: DictConfig) -> bool:
    """Return whether `cfg` needs the learning rate of a best trial.

    If `cfg` is itself a trial (its setting `trial` is set), puts the trial's values into it. Raises
    SettingError for an unknown `training.rate`, or if the rate is tuned and there is no tuning.
    """
    if cfg.trial is not None:
        if not isinstance(cfg.trial, DictConfig):
            raise SettingError("trial", f"lr, momentum and seed are needed, not {cfg.trial!r}")
        plain: Any = OmegaConf.to_container(cfg.trial, resolve=True)
        _put_trial(cfg, Trial(**{str(name): value for name, value in plain.items()}))
        return False
    rate = cfg.training.rate
    if rate not in RATES:
        raise SettingError("training.rate", f"{rate!r}; there are: {', '.join(RATES)}")
    if rate == "tuned" and cfg.tuning is None:
        raise SettingError("training.rate", "tuned, but the study has no tuning")
    return rate == "tuned"


def put_trial(cfg: DictConfig) -> None:
    """Set the values of the trial in `cfg`, if it is one.

    Raises SettingError for an unknown `training.rate`, and for a rate that is tuned: what a search
    finds follows from the trials of all configurations of a study.
    """
    if needs_tuning(cfg):
        message = f"tuned by all schemes of a study together; run paceline sweep {cfg.study}"
        raise SettingError("training.rate", message)


def _scheme(cfg: DictConfig) -> str:
    return str(OmegaConf.select(cfg, "names.scheme"))
