"""Computes the seconds and samples until top-1, top-5 or loss of validation first reach a target.

Runs that never reach it are counted. The target is the one that the study asks for, or else
two points below the best mean top-1 of one worker, at the last evaluation of its curves: on the
images on which others are held to it.
"""

import math
from typing import NamedTuple

import pandas as pd

from paceline.analysis.configuration import Configuration, RowOf, configurations, matching
from paceline.analysis.frames import Frame, Row
from paceline.analysis.intervals import NONE, interval, not_negative
from paceline.analysis.statistics.crossing import first_above
from paceline.analysis.tables import Tables

BELOW_BEST = 0.02  # distance of the target from the best top-1, a share, if the study asks for none
BY_STUDY = "the study"
_COLUMNS = ["kind", "data", "target", "set_by"]


class TargetMetric(NamedTuple):
    """Metric of validation. `sign`: 1 if more of it is better, -1 if less is."""

    column: str
    sign: int

    def gain(self, table: Frame) -> Frame:
        """Return the metric of each row, its sign changed if less is better."""
        return self.sign * table[self.column]


TOP1 = TargetMetric("top1", 1)
_METRICS = (TOP1, TargetMetric("top5", 1), TargetMetric("validation_loss", -1))


def target_metric(tables: Tables) -> TargetMetric:
    """Return the metric that the study's target is of; top-1 if it asks for none."""
    asked = tables.about["target"]
    if not asked:
        return TOP1
    return next(each for each in _METRICS if each.column.endswith(asked["metric"]))


def targets(tables: Tables) -> Frame:
    """Return one row per kind and data set: kind, data, target, set_by.

    `set_by` names the configuration with the best mean, or BY_STUDY for a value of the study's own.
    Without such a value, there is no row for a kind and data set without a finished point of one
    worker.
    """
    rows = []
    asked = tables.about["target"] or {"below_baseline": BELOW_BEST}
    metric = target_metric(tables)
    if "value" in asked:
        own = {"target": asked["value"], "set_by": BY_STUDY}
        rows = [group | own for group, _ in configurations(tables.runs, ["data"])]
        return pd.DataFrame(rows, columns=_COLUMNS)
    alone = tables.finished[tables.finished["workers"] == 1]
    for group, points in configurations(alone, ["data"]):
        means = {
            _configuration_text(configuration): interval(
                metric.gain(last_evaluations(tables, same))
            ).mean
            for configuration, same in configurations(points, tables.axes)
        }
        name, best = max(means.items(), key=lambda item: item[1])
        if not math.isnan(best):
            target = metric.sign * (best - asked["below_baseline"])
            rows.append(group | {"target": target, "set_by": name})
    return pd.DataFrame(rows, columns=_COLUMNS)


def last_evaluations(tables: Tables, points: Frame) -> Frame:
    """Return the last row of each point's curve, or the point itself if it has none.

    The rows have `key` and the metrics of validation; their order is not that of `points`.
    """
    ends = [tables.curve(key).sort_values("samples").tail(1) for key in points["key"]]
    without = [not len(end) for end in ends]
    return pd.concat([*ends, points.loc[without]])


def time_to_target(tables: Tables) -> RowOf:
    """Return what fills the columns on the target, of a kind and data set that has one.

    `target` of the study's metric, a share or nats, and `target_set_by`; `target_n_reached` runs
    reached it, `target_n_censored` finished or diverged without. `target_seconds` and
    `target_samples` until the first evaluation that is as good have a mean only if every run
    reached it, because a mean of only the fast runs would be biased. In their `_median` a run that
    did not reach it counts as later than all others.
    """
    goals, metric = targets(tables), target_metric(tables)

    def row(configuration: Configuration, points: Frame) -> Row:
        goal = matching(goals, {name: configuration[name] for name in ("kind", "data")})
        if goal.empty:
            return {}
        target, set_by = goal["target"].iloc[0], goal["set_by"].iloc[0]
        trained = points[points["status"] != "failed"]
        crossings = [first_crossing(tables.curve(key), target, metric) for key in trained["key"]]
        reached = [crossing for crossing in crossings if crossing is not None]
        censored = len(crossings) - len(reached)
        row: Row = {"target": target, "target_set_by": set_by}
        row |= {"target_n_reached": len(reached), "target_n_censored": censored}
        for index, name in enumerate(("target_seconds", "target_samples")):
            values = [crossing[index] for crossing in reached]
            row |= (NONE if censored else interval(values, not_negative(values))).named(name)
            row[f"{name}_median"] = _median(values, censored)
        return row

    return row


def first_crossing(
    curve: Frame, target: float, metric: TargetMetric = TOP1
) -> tuple[float, float] | None:
    """Return (seconds, samples) of the first of some rows in a row that are as good as `target`.

    None if there are none; see `first_above`.
    """
    if not len(curve):
        return None
    rows = curve.sort_values("samples", kind="stable")
    place = first_above(metric.gain(rows), metric.sign * target)
    if place is None:
        return None
    return float(rows["seconds"].iloc[place]), float(rows["samples"].iloc[place])


def _median(values: list[float], num_later: int) -> float:
    """Return the median of `values` and of `num_later` unknown larger numbers.

    It is NaN if it depends on an unknown number.
    """
    n = len(values) + num_later
    ordered = sorted(values) + [math.nan] * num_later
    return (ordered[(n - 1) // 2] + ordered[n // 2]) / 2 if n else math.nan


def _configuration_text(configuration: Configuration) -> str:
    parts = [f"{k}={v}" for k, v in configuration.items() if k not in ("kind", "scheme")]
    return " ".join([str(configuration["scheme"]), *parts])
