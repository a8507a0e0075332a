"""Computes restricted mean times to the target, and finds the best one-worker runs."""

from collections.abc import Mapping
from typing import NamedTuple

from paceline.analysis.configuration import (
    SPLIT,
    Configuration,
    configurations,
    matching,
    num_processes,
)
from paceline.analysis.frames import Frame
from paceline.analysis.statistics.crossing import NEVER, Crossing, crossing
from paceline.analysis.statistics.ratio import fastest
from paceline.analysis.statistics.restricted_mean import RestrictedMean, restricted_mean
from paceline.analysis.tables import Tables
from paceline.analysis.time_to_target import TargetMetric, target_metric

_CHOSEN = ("batch_size", "global_batch_size", "training.", "scheme.")  # by whoever trains


Crossings = Mapping[str, Crossing]  # by the key of the run


def crossings(tables: Tables, goals: Frame) -> Crossings:
    """Return the crossing [seconds] of each run; `goals` has a target for its kind and data.

    A run that diverged never reaches it; others that did not might have, after their end.
    """
    runs = tables.runs.merge(goals[["kind", "data", "target"]], on=["kind", "data"])
    metric = target_metric(tables)
    return {
        key: _crossing(tables.curve(key), status, target, metric)
        for key, status, target in zip(runs["key"], runs["status"], runs["target"], strict=True)
    }


def _crossing(curve: Frame, status: str, target: float, metric: TargetMetric) -> Crossing:
    curve = curve.sort_values("samples", kind="stable")
    found = crossing(curve["seconds"], metric.gain(curve), metric.sign * target)
    return NEVER if status == "diverged" and not found.reached else found


def target_times(points: Frame, found: Crossings, horizon: float) -> RestrictedMean:
    """Return the restricted mean of the seconds of points to the target; its n may be 0.

    A run that failed is left out, since what failed is the machine.
    """
    trained = points[points["status"] != "failed"]
    return restricted_mean([found[key] for key in trained["key"]], horizon)


class OneWorker(NamedTuple):
    """Runs of a configuration of one worker, and their time to the target."""

    configuration: Configuration
    points: Frame
    time: RestrictedMean

    @property
    def name(self) -> str:
        """Settings of the configuration."""
        settings = self.configuration.items()
        return " ".join(f"{k}={v}" for k, v in settings if k not in ("kind", "workers"))


def best_one_worker(
    tables: Tables, situation: Configuration, found: Crossings, horizon: float
) -> OneWorker | None:
    """Return the one-worker runs that are first at the target, or None if none reach it.

    Its scheme, rate and batch are free. What a situation is given (data, network, cluster) it
    shares, as far as one worker was run with it.
    """
    alone = matching(tables.runs, {"kind": situation["kind"], "workers": 1})
    alone = alone[num_processes(alone) == 1]
    for name in ["data", *_given(tables)]:
        same = matching(alone, {name: situation[name]})
        alone = same if len(same) else alone
    alone = alone[alone["status"] != "failed"]
    sides = [
        OneWorker(configuration, points, target_times(points, found, horizon))
        for configuration, points in (configurations(alone, tables.axes) if len(alone) else [])
    ]
    sides = [side for side in sides if side.time.reached]
    return sides[fastest([side.time for side in sides])] if sides else None


def _given(tables: Tables) -> list[str]:
    return [n for n in tables.facets if not n.startswith(_CHOSEN) and n not in SPLIT]


def horizon_of(tables: Tables, situation: Configuration) -> float:
    """Return the seconds of the longest run of the same kind and data: the horizon of the study."""
    same = {name: situation[name] for name in ("kind", "data")}
    return float(matching(tables.runs, same)["seconds"].max())
