"""Hyperparameter search of a study: the trials of each configuration, and the best of them.

Trials run before the points of the study. Of the tables, only tuning.csv has their results. A
search that has ended is read back from there, so that the points of a study stay what they are;
who wants another search removes the table.
"""

import csv
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from paceline.errors import SettingError
from paceline.record.point_config import PointConfig
from paceline.record.report_files import damaged
from paceline.study.compose import copied
from paceline.study.search import GridSearch, Trial, Tried, trial_of
from paceline.study.study_point import StudyPoint

RATES = ("by_rule", "tuned")


class Configuration:
    """Configuration of a study, with its trials; all its points get the same learning rate.

    `point`: any point of the configuration. `axes`: values of the settings that differ between
    configurations, by dotted name. `table`: rows of the study's tuning.csv.
    """

    def __init__(self, point: StudyPoint, table: Sequence[Mapping[str, str]]) -> None:
        search = point.tuning
        assert search is not None  # since it is tuned
        self._scheme = _scheme(point.cfg)
        decided = {"seed", "training.rate", *search.names(self._scheme), *search.at}
        self.axes = {name: value for name, value in point.axes.items() if name not in decided}
        self._points = dict[Trial, StudyPoint]()
        self._of, self._search, self._table = point, search, table

    @property
    def key(self) -> str:
        """Key of the first trial, which is the same for all points of a configuration."""
        return self._point(self.tried.trials[0]).key

    @property
    def tried(self) -> Tried:
        """The trials that follow from the records as they were last read, and the best of them."""
        return self._ended or self._search.tried(self._scheme, lambda t: self._point(t).result)

    @property
    def points(self) -> Mapping[Trial, StudyPoint]:
        """The points of the known trials, in the order of their runs."""
        return {trial: self._point(trial) for trial in self.tried.trials}

    @cached_property
    def _ended(self) -> Tried | None:
        """The search as tuning.csv has it: it stays as it was, whatever the settings say now.

        None if it has not ended, or if its trials have, or must have, other results than there.
        """
        axes = {name: _cell(value) for name, value in self.axes.items()}
        rows = {trial_of(row): row for row in self._table if axes.items() <= row.items()}
        chosen = [trial for trial, row in rows.items() if row.get("chosen") == "true"]
        if len(chosen) != 1:
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
        classes = self._of.cfg.data.get("num_classes")  # which data of a user need not say
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
                    "chance": classes and 1 / classes,
                    "chosen": "true" if chosen else "false",
                    "at_edge": tried.edge if chosen else "",
                    **({"own": trial.own_text} if trial.own else {}),
                }

    def _point(self, trial: Trial) -> StudyPoint:
        if trial not in self._points:
            config = trial_config(self._of.cfg, trial, self._search.at)
            names = (*self._of.overrides, f"trial={trial.override}")
            axes = {**self.axes, **trial.settings}
            of = self._of
            self._points[trial] = StudyPoint(
                config, of.cfg, axes, names, of.root, archived=of.archived
            )
        return self._points[trial]


def read_table(folder: Path) -> list[dict[str, str]]:
    """Return the rows of tuning.csv in a study's folder of reports/; [] without one.

    Raises SettingError("study") for a table that cannot be read.
    """
    table = folder / "tuning.csv"
    try:
        rows = list(csv.DictReader(table.read_text().splitlines())) if table.is_file() else []
        for row in rows:
            trial_of(row)
    except (ValueError, KeyError, TypeError, AttributeError, csv.Error) as error:
        raise damaged(table, f"is damaged: {error!r}", f"rm {table}") from error
    return rows


def _cell(value: Any) -> str:
    return "" if value is None else str(value)


def read_tuning(setting: Any) -> GridSearch:
    """Read the setting `tuning`. Raises SettingError for an invalid value."""
    if not isinstance(setting, Mapping):
        raise SettingError("tuning", f"the settings of a search are needed, not {setting!r}")
    named = {str(name): value for name, value in setting.items()}
    return GridSearch(**named)


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


def put_best(cfg: DictConfig, tuning: GridSearch, best: Trial | None) -> None:
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

    Raises SettingError for an unknown `training.rate`, and for a rate that is tuned: only the sweep
    of a study searches.
    """
    if needs_tuning(cfg):
        message = f"found by the search of a study; run paceline sweep {cfg.study}"
        raise SettingError("training.rate", message)


def _scheme(cfg: DictConfig) -> str:
    return str(OmegaConf.select(cfg, "names.scheme"))
