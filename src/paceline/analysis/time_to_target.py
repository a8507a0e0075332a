"""Computes mean curves, and when runs first reach a target of top-1, top-5 or validation loss.

The study may set the target. Else it is two percentage points below the best mean top-1 of one
worker at its last evaluation.
"""

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pandas as pd

from paceline.analysis.configuration import (
    NOT_TRAINED,
    OPTIMIZER,
    SPLIT,
    Configuration,
    configurations,
    groups,
    matching,
    num_processes,
    situation_columns,
    with_processes,
)
from paceline.analysis.frames import Frame, Row
from paceline.analysis.intervals import NONE, interval, not_negative
from paceline.analysis.statistics.times import (
    NEVER,
    Crossing,
    RestrictedMean,
    crossing,
    restricted_mean,
)
from paceline.analysis.tables import Tables

BELOW_BEST = 0.02  # distance of the target from the best top-1, a share, if the study asks for none
BY_STUDY = "the study"
_COLUMNS = ["kind", "data", "target", "error", "set_by"]
# the user sets these
_CHOSEN = ("batch_size", "global_batch_size", "training.", "scheme.", OPTIMIZER)
_OF_CURVES = ("evaluation", "n", "samples", "seconds", "top1", "is_front")
Crossings = Mapping[str, Crossing]  # by the key of the run


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


@lru_cache(maxsize=1)
def targets(tables: Tables) -> Frame:
    """Return one row per kind and data set, with its target.

    `set_by` is BY_STUDY if the study sets the value of the target; else it names the one-worker
    configuration with the best mean, from which the target is computed. In this case, a kind and
    data set without a finished point of one worker has no row. `error` is the standard error of
    this mean, and 0 if it is not known.
    """
    rows = []
    asked = tables.about["target"] or {"below_baseline": BELOW_BEST}
    metric = target_metric(tables)
    if "value" in asked:
        own = {"target": asked["value"], "error": 0.0, "set_by": BY_STUDY}
        rows = [group | own for group, _ in configurations(tables.runs, ["data"])]
        return pd.DataFrame(rows, columns=_COLUMNS)
    for group, points in configurations(matching(tables.finished, {"workers": 1}), ["data"]):
        gains = {
            settings_of(configuration, ("kind", "scheme"), str(configuration["scheme"])): (
                metric.gain(last_evaluations(tables, same))
            )
            for configuration, same in configurations(points, tables.axes)
        }
        means = {name: interval(own).mean for name, own in gains.items()}
        name, best = max(means.items(), key=lambda item: item[1])
        if not math.isnan(best):
            target = metric.sign * (best - asked["below_baseline"])
            error = float(np.nan_to_num(gains[name].sem()))  # NaN for a single run
            rows.append(group | {"target": target, "error": error, "set_by": name})
    return pd.DataFrame(rows, columns=_COLUMNS)


def target_of(tables: Tables, configuration: Configuration) -> Row | None:
    """Return the row of `targets` for the kind and data set of a configuration, or None."""
    same = matching(targets(tables), {name: configuration[name] for name in ("kind", "data")})
    return dict(same.iloc[0]) if len(same) else None


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
    """Return the columns on the target; none if the kind and data set has no target.

    - `target_n_reached`, `target_n_censored`: number of runs that reached the target, and of those
      that finished or diverged without reaching it;
    - `target_seconds`, `target_samples`: means of the time and of the number of images until the
      target is reached, only if every run reached it, because a mean of only the fast runs would be
      biased;
    - `target_seconds_median`, `target_samples_median`: medians in which a run that did not reach
      the target counts as later than all others.
    """
    goal = target_of(tables, configuration)
    if goal is None:
        return {}
    row: Row = {"target": goal["target"], "target_set_by": goal["set_by"]}
    keys = points.loc[points["status"] != "failed", "key"]
    for axis in ("seconds", "samples"):
        found = crossings(tables, axis)
        values = [found[key].high for key in keys if found[key].reached]
        censored = len(keys) - len(values)
        row |= {"target_n_reached": len(values), "target_n_censored": censored}
        mean = NONE if censored else interval(values, not_negative(values))
        row |= mean.named(f"target_{axis}")
        median = pd.Series([*values, *[math.inf] * censored], dtype=float).median()
        row[f"target_{axis}_median"] = median if math.isfinite(median) else math.nan
    return row


@lru_cache(maxsize=8)
def crossings(tables: Tables, axis: str, errors: float = 0.0) -> Crossings:
    """Return for each run with a target the interval of `axis` in which it reached the target.

    `axis` is the column seconds or samples of the curve. The target is made harder by so many of
    its standard `errors`. A run that did not train would never have reached the target; other runs
    that did not reach it might have done so later.
    """
    goals, metric, found = targets(tables), target_metric(tables), dict[str, Crossing]()
    goals = goals.assign(gain=metric.sign * goals["target"] + errors * goals["error"])
    runs = tables.runs.merge(goals[["kind", "data", "gain"]], on=["kind", "data"])
    for key, status, gain in zip(runs["key"], runs["status"], runs["gain"], strict=True):
        curve = tables.curve(key)
        own = crossing(curve[axis], metric.gain(curve), gain)
        found[key] = NEVER if status in NOT_TRAINED and not own.reached else own
    return found


def target_seconds(tables: Tables) -> Mapping[str, float]:
    """Return the time of each run at the first evaluation at which it had reached the target."""
    found = crossings(tables, "seconds").items()
    return {key: own.high for key, own in found if own.reached}


def target_times(
    tables: Tables, points: Frame, horizon: float, errors: float = 0.0
) -> RestrictedMean:
    """Return the restricted mean (up to `horizon`) of the points' seconds to the target.

    Failed runs are left out, because then the machine failed, not the scheme. The number of runs
    `n` may be 0. `errors`: as at `crossings`.
    """
    found = crossings(tables, "seconds", errors)
    own = points[points["status"] != "failed"]
    return restricted_mean([found[key] for key in own["key"]], horizon, own["seed"].tolist())


def error_of_target(tables: Tables, points: Frame, horizon: float) -> float:
    """Return by how much the logarithm of the points' time changes with the target's own error.

    The change is for a target that is one standard error higher; the time is the restricted mean.
    """
    low, high = (target_times(tables, points, horizon, errors=side).mean for side in (-1.0, 1.0))
    return math.log(high / low) / 2 if low > 0 else 0.0


class OneWorker(NamedTuple):
    """Runs of a configuration of one worker, and their time to the target."""

    configuration: Configuration
    points: Frame
    time: RestrictedMean

    @property
    def name(self) -> str:
        """Settings of the configuration."""
        return settings_of(self.configuration, ("kind", "workers"))


def best_one_worker(tables: Tables, situation: Configuration, horizon: float) -> OneWorker | None:
    """Return the one-worker configuration that reaches the target first; None if none does.

    It may have any scheme, learning rate and batch size. It has the situation's data set, network
    and cluster, as far as one worker was run with these.
    """
    runs = matching(tables.runs, {"kind": situation["kind"], "workers": 1})
    runs = runs[num_processes(runs) == 1]
    given = [n for n in tables.facets if not n.startswith(_CHOSEN) and n not in SPLIT]
    for name in ["data", *given]:
        same = matching(runs, {name: situation[name]})
        runs = same if len(same) else runs
    runs = runs[runs["status"] != "failed"]
    sides = [
        OneWorker(configuration, points, target_times(tables, points, horizon))
        for configuration, points in configurations(runs, tables.axes)
    ]
    sides = [side for side in sides if side.time.reached]
    return min(sides, key=lambda side: side.time.mean, default=None)


def horizon_of(tables: Tables, situation: Configuration) -> float:
    """Return the seconds of the longest run of the same kind and data set."""
    same = {name: situation[name] for name in ("kind", "data")}
    return float(matching(tables.runs, same)["seconds"].max())


def mean_curves(tables: Tables) -> Frame:
    """Return one row per configuration and evaluation, with means over finished seeds.

    `evaluation` is the number of the evaluation, from 1; evaluations that some seed lacks are left
    out. `top1` is measured on validation images. `is_front` is 1 where `top1` is higher than at
    every evaluation of the same situation, of any configuration, that took no more seconds; else 0.
    """
    axes = ["kind", "data", *tables.axes]
    curves = tables.curves.sort_values(["key", "samples"], kind="stable")
    curves = curves.assign(evaluation=curves.groupby("key", sort=False).cumcount() + 1)
    rows: list[Row] = []
    for configuration, points in groups(tables.finished[["key", *axes]], axes):
        own = curves[curves["key"].isin(points["key"])].groupby("evaluation")
        means = own[["samples", "seconds", "top1"]].mean().assign(n=own.size())
        means = means[means["n"] == len(points)].reset_index()
        rows += [configuration | row for row in means.to_dict("records")]
    made = pd.DataFrame(rows, columns=[*axes, *_OF_CURVES])
    same = situation_columns(tables.axes)
    fronts = [_front(rows) for _, rows in groups(with_processes(made), same)]
    return made.assign(is_front=pd.concat(fronts).reindex(made.index) if fronts else [])


def _front(rows: Frame) -> Frame:
    """Return 1 for a row whose `top1` is above that of all rows with no more seconds, else 0."""
    ordered = rows.sort_values(["seconds", "top1"], ascending=[True, False], kind="stable")
    before = ordered["top1"].cummax().shift(fill_value=-1.0)
    return (ordered["top1"] > before).astype(int)
