"""Trials by which a study tunes the rate and momentum of its tuned points; they run first.

Their results are in tuning.csv alone, never among those of the study.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paceline.record.record import Result
from paceline.study.abstract_tuning import AbstractTuning, Trial, Tried, trial_override
from paceline.study.study_points import Job, StudyPoint, composed_jobs
from paceline.study.tuned_rate import read_tuning, trial_config


@dataclass(frozen=True)
class Configuration:
    """Configuration of a study, and the points of its trials in the order of `tried.trials`.

    `axes`: values of the settings by which configurations differ. `overrides`: of the command line,
    without a trial.
    """

    axes: Mapping[str, Any]
    overrides: tuple[str, ...]
    points: Mapping[Trial, StudyPoint]
    tried: Tried

    @property
    def arguments(self) -> list[str]:
        """Return the overrides of a multirun of the trials."""
        return [*self.overrides, trial_override(self.points)]

    def rows(self) -> Iterator[Mapping[str, Any]]:
        """Yield a row of tuning.csv for each record; none is chosen before all have records."""
        for trial, point in self.points.items():
            if point.result:
                chosen = trial == self.tried.best
                yield {
                    "key": point.key,
                    **self.axes,
                    "seed": trial.seed,
                    "lr": trial.lr,
                    "momentum": point.config.values["training"]["momentum"],
                    **{name: point.result.get(name) for name in ("top1", "test_top1", "status")},
                    "chance": 1 / point.config.values["data"]["num_classes"],
                    "chosen": "true" if chosen else "false",
                    "at_edge": self.tried.edge if chosen else "",
                }


def study_tuning(points: Sequence[StudyPoint]) -> AbstractTuning | None:
    """Return the tuning of the study of `points`, or None if it has none.

    Raises SettingError if a seed of the tuning is one of theirs: what is reported must not have
    been tuned on.
    """
    setting = points[0].config.tuning
    if setting is None:
        return None
    tuning = read_tuning(setting)
    tuning.require_other_seeds({point.config.seed for point in points})
    return tuning


def tuned_configurations(
    study: str, root: Path, overrides: Sequence[str], tuning: AbstractTuning
) -> list[Configuration]:
    """Return each configuration of the study with the trials to which its records lead so far.

    Every configuration is there once, also if grids share it.
    """

    known = set[str]()  # keys of first trials; all points of a configuration have the same trials

    def configuration(job: Job) -> Configuration | None:
        points = {tuning.first[0]: _trial_point(job, root, tuning.first[0], tuning)}
        first = points[tuning.first[0]]
        if first.key in known:
            return None
        known.add(first.key)

        def result_of(trial: Trial) -> Result | None:
            if trial not in points:
                points[trial] = _trial_point(job, root, trial, tuning)
            return points[trial].result

        tried = tuning.tried(result_of)
        left_out = {*tuning.names, *tuning.at}
        axes = {name: value for name, value in first.axes.items() if name not in left_out}
        return Configuration(axes, job.overrides, points, tried)

    asked = [*overrides, *tuning.overrides()]
    return [each for each in composed_jobs(study, root, asked, configuration)[1] if each]


def points_of(configurations: Sequence[Configuration]) -> list[StudyPoint]:
    """Return the points of all trials."""
    return [point for each in configurations for point in each.points.values()]


def untried(configurations: Sequence[Configuration], keys: Collection[str]) -> list[Configuration]:
    """Return the configurations with those of their trials whose points do not have these keys.

    A configuration that has none is left out.
    """
    left = [
        replace(
            each, points={t: point for t, point in each.points.items() if point.key not in keys}
        )
        for each in configurations
    ]
    return [each for each in left if each.points]


def _trial_point(job: Job, root: Path, trial: Trial, tuning: AbstractTuning) -> StudyPoint:
    axes = {**job.axes, **trial.settings}
    tried = job._replace(axes=axes, overrides=(*job.overrides, trial_override([trial])))
    return tried.point(root, trial_config(job.cfg, trial, tuning.at))
