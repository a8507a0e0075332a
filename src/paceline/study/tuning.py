"""Points on which a study tunes the rate of its tuned points; they run first.

Their results are in tuning.csv alone, never among those of the study.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from paceline.errors import SettingError
from paceline.record.record import Result
from paceline.study.study_points import StudyPoint, study_points
from paceline.study.tuned_rate import Tuning, best_rate, read_tuning

TUNING = ("lr", "top1", "status", "chosen")  # columns of tuning.csv, after key and configuration


def study_tuning(points: Sequence[StudyPoint]) -> Tuning | None:
    """Return the tuning of the study of `points`, or None if it has none.

    Raises SettingError if the tuning's seed is one of theirs: a rate must not be tuned on reported
    points.
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
    """Return one point for each configuration of the study and each rate of `tuning`."""
    return study_points(study, root, [*overrides, *tuning.overrides()]) if tuning else []


def tuning_axes(points: Sequence[StudyPoint]) -> list[str]:
    """Return the axes by which configurations of tuning points differ."""
    return [name for name in points[0].axes if name != "training.lr"] if points else []


def tuning_rows(points: Sequence[StudyPoint]) -> Iterator[Mapping[str, Any]]:
    """Yield a row for each record of a tuning point.

    No rate is chosen before all points of its configuration have records.
    """
    for point in points:
        if point.result:
            outcome = {"top1": point.result["top1"], "status": point.result["status"]}
            rate, best = _rate(point), best_rate(_results_by_rate(point, points))
            chosen = "true" if rate == best else "false"
            axes = {name: point.axes[name] for name in tuning_axes(points)}
            yield {"key": point.key, **axes, "lr": rate, **outcome, "chosen": chosen}


def _results_by_rate(point: StudyPoint, points: Sequence[StudyPoint]) -> dict[float, Result | None]:
    """Return the results of all points of the point's configuration by rate."""
    names = tuning_axes(points)
    same = [p for p in points if all(p.axes[name] == point.axes[name] for name in names)]
    return {_rate(p): p.result for p in same}


def _rate(point: StudyPoint) -> float:
    assert point.config.lr is not None
    return point.config.lr
