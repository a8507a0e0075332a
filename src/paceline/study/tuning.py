"""The points on which a study tunes the rate of its tuned points: run first, never reported."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from paceline.errors import SettingError
from paceline.study.study_points import StudyPoint, study_points
from paceline.study.tuned_rate import Tuning, best_rate, read_tuning

TUNING = ("lr", "top1", "status", "chosen")  # columns of tuning.csv, after key and configuration


def study_tuning(points: Sequence[StudyPoint]) -> Tuning | None:
    """The tuning of the study of `points`; None where it has none.

    Raises SettingError where its seed is one of theirs: what is tuned on is not reported.
    """
    setting = points[0].config.tuning
    if setting is None:
        return None
    tuning = read_tuning(setting)
    if tuning.seed in {point.config.seed for point in points}:
        raise SettingError("tuning.seed", f"{tuning.seed} is a seed of the study's own points too")
    return tuning


def tuning_points(
    study: str, root: Path, overrides: Sequence[str], tuning: Tuning | None
) -> list[StudyPoint]:
    """For every configuration of the study, one point for each rate; none without `tuning`."""
    return study_points(study, root, [*overrides, *tuning.overrides()]) if tuning else []


def tuning_axes(points: Sequence[StudyPoint]) -> list[str]:
    """What tells the configurations of tuning points apart."""
    return [name for name in points[0].axes if name != "training.lr"] if points else []


def tuning_rows(points: Sequence[StudyPoint]) -> Iterator[Mapping[str, Any]]:
    """A row for each record of a tuning point; none is chosen before all of a configuration are."""
    for point in points:
        if point.result:
            found = {"top1": point.result["top1"], "status": point.result["status"]}
            rate, best = _rate(point), best_rate(_alike(point, points))
            chosen = "true" if rate == best else "false"
            axes = {name: point.axes[name] for name in tuning_axes(points)}
            yield {"key": point.key, **axes, "lr": rate, **found, "chosen": chosen}


def _alike(
    point: StudyPoint, points: Sequence[StudyPoint]
) -> dict[float, Mapping[str, Any] | None]:
    """The results of its configuration, by rate."""
    names = tuning_axes(points)
    same = [p for p in points if all(p.axes[name] == point.axes[name] for name in names)]
    return {_rate(p): p.result for p in same}


def _rate(point: StudyPoint) -> float:
    assert point.config.lr is not None
    return point.config.lr
