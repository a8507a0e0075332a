"""Finds when runs first reach a target of top-1, top-5 or validation loss.

The study may set the target. Else it is two percentage points below the best mean top-1 of one
worker at its last evaluation.
"""

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from paceline.analysis.configuration import Configuration, configurations, finished, matching
from paceline.analysis.frames import Frame, Row
from paceline.analysis.intervals import NONE, interval, not_negative
from paceline.analysis.tables import Tables

IN_A_ROW = 3  # evaluations at or above the target, since one alone may be luck
BELOW_BEST = 0.02  # distance of the target from the best top-1, a share, if the study asks for none
BY_STUDY = "the study"
_COLUMNS = ["kind", "data", "target", "set_by"]


class TargetMetric(NamedTuple):
    """Validation metric, in the table's `column`; `sign` is 1 if larger is better, else -1."""

    column: str
    sign: int

    def gain(self, curve: Frame) -> Frame:
        """Return the metric of each row, negated if smaller is better, so that larger is better."""
        return self.sign * curve[self.column]


_METRICS = {
    "top1": TargetMetric("top1", 1),
    "top5": TargetMetric("top5", 1),
    "loss": TargetMetric("validation_loss", -1),
}


def target_metric(tables: Tables) -> TargetMetric:
    """Return the metric of the study's target, top-1 by default."""
    return _METRICS[(tables.about["target"] or {"metric": "top1"})["metric"]]


@lru_cache(maxsize=8)
def targets(tables: Tables) -> Frame:
    """Return one row per kind and data set, with its target.

    `set_by` is BY_STUDY if the study sets the value of the target; else it names the one-worker
    configuration with the best mean, from which the target is computed. In this case, a kind and
    data set without a finished point of one worker has no row.
    """
    rows = []
    asked = tables.about["target"] or {"below_baseline": BELOW_BEST}
    metric = target_metric(tables)
    if "value" in asked:
        own = {"target": asked["value"], "set_by": BY_STUDY}
        rows = [group | own for group, _ in configurations(tables.runs, ["data"])]
        return pd.DataFrame(rows, columns=_COLUMNS)
    for group, points in configurations(matching(tables.finished, {"workers": 1}), ["data"]):
        means = {
            settings_of(configuration, ("kind", "scheme"), str(configuration["scheme"])): (
                interval(metric.gain(last_evaluations(tables, same))).mean
            )
            for configuration, same in configurations(points, tables.axes)
        }
        name, best = max(means.items(), key=lambda item: item[1])
        if not math.isnan(best):
            target = metric.sign * (best - asked["below_baseline"])
            rows.append(group | {"target": target, "set_by": name})
    return pd.DataFrame(rows, columns=_COLUMNS)


def settings_of(configuration: Configuration, without: tuple[str, ...], *first: str) -> str:
    """Name a configuration by the words `first` and its settings (key=value), some left out."""
    parts = [f"{key}={value}" for key, value in configuration.items() if key not in without]
    return " ".join([*first, *parts])


def last_evaluations(tables: Tables, points: Frame) -> Frame:
    """Return the last evaluation of each point; for a point without a curve, its row in `points`.

    The order of the rows is not that of the points.
    """
    ends = [tables.curve(key).tail(1) for key in points["key"]]
    without = [not len(end) for end in ends]
    return pd.concat([*ends, points.loc[without]])


def time_to_target(tables: Tables, configuration: Configuration, points: Frame) -> Row:
    """Return the columns on the target, see `targets`; none if the kind and data set has none.

    - `target_n_reached`, `target_n_censored`: number of runs that reached the target, and of those
      that finished or diverged without reaching it;
    - `target_seconds`: mean of the time until the target is reached, only if every run reached it:
      a mean of only the fast runs would be biased. Else the target takes longer than the runs.
    """
    goal = matching(targets(tables), {name: configuration[name] for name in ("kind", "data")})
    if goal.empty:
        return {}
    known, own = crossings(tables), points.loc[points["status"] != "failed", "key"]
    values = [known[key] for key in own if key in known]
    censored = len(own) - len(values)
    row: Row = {"target": goal["target"].iloc[0], "target_set_by": goal["set_by"].iloc[0]}
    row |= {"target_n_reached": len(values), "target_n_censored": censored}
    mean = NONE if censored else interval(values, not_negative(values))
    return row | mean.named("target_seconds")


@lru_cache(maxsize=8)
def crossings(tables: Tables) -> Mapping[str, float]:
    """Return the seconds at which each run reached its target, by its key; others are left out."""
    metric, found = target_metric(tables), dict[str, float]()
    runs = tables.runs.merge(targets(tables), on=["kind", "data"])
    for key, target in zip(runs["key"], runs["target"], strict=True):
        curve = tables.curve(key)
        where = crossing(curve["seconds"], metric.gain(curve), metric.sign * target)
        if where is not None:
            found[key] = where
    return found


def crossing(axis: ArrayLike, values: ArrayLike, target: float) -> float | None:
    """Return where on a rising `axis` [evaluations] a run reached the target by its `values`.

    The target counts as reached at the first of IN_A_ROW consecutive evaluations with a value of at
    least `target`; at the end of the run, fewer are enough. Larger values are better.
    """
    above = np.asarray(values, float) >= target
    for first in np.flatnonzero(above):
        if above[first : first + IN_A_ROW].all():
            return float(np.asarray(axis, float)[first])
    return None


def images_to_target(runs: Frame, metric: str, target: float) -> Frame:
    """Return for each seed how many images it takes until `metric` is `target`: seed and images.

    `runs` have several budgets a seed. Only the end of a run counts, since its learning rate falls
    with its own budget. Between two budgets, `metric` is linear in the logarithm of the images, and
    a larger budget counts as no less accurate. `images` is infinite if no run that finished gets
    there, and the smallest budget if this is more than enough.
    """
    rows = []
    for seed, own in runs.sort_values("samples").groupby("seed"):
        images, ends = finished(own)["samples"], finished(own)[metric].cummax()
        after = int(np.searchsorted(ends, target))  # the first budget that reaches the target
        needed = [*images, math.inf][after]
        if 0 < after < len(ends):
            last = slice(after - 1, after + 1)
            needed = math.exp(np.interp(target, ends.iloc[last], np.log(images.iloc[last])))
        rows.append({"seed": seed, "images": needed})
    return pd.DataFrame(rows, columns=["seed", "images"])
