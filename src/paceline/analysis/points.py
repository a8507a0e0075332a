"""Computes numbers of single runs (speed-up, time to the target, accuracy) and mean curves.

Accuracies are compared at equal budgets. The common time of several points is the smallest total
`seconds` of the finished ones that have the same kind, number of workers and settings, over all
schemes and learning rates. The common number of updates is defined in the same way.
"""

import math
from functools import lru_cache

import pandas as pd

from paceline.analysis.configuration import (
    SPLIT,
    Configuration,
    groups,
    is_of_scheme,
    num_processes,
    situation_columns,
    with_processes,
)
from paceline.analysis.frames import Frame, Row
from paceline.analysis.intervals import interval
from paceline.analysis.statistics.means import POINTS
from paceline.analysis.tables import Tables
from paceline.analysis.time_to_target import crossings, last_evaluations, targets

_BUDGETS = {"time": "seconds", "updates": "updates"}
_RATES = ("training.lr", "training.rate")  # prefixes of axes that are tuned, not compared
_OF_CURVES = ("evaluation", "n", "samples", "seconds", "top1", "is_front")


def points(tables: Tables) -> Frame:
    """Return one row per point (a single run), named by `key`; a number that is not known is NaN.

    `speedup` and `efficiency` compare with the run of one process with the same scheme, settings
    and seed. `target_seconds` is the time of the first evaluation at which the `target` counts as
    reached. The other columns are described at `at_equal_budgets`.
    """
    goals, found = targets(tables)[["kind", "data", "target"]], crossings(tables, "seconds")
    reached = {key: own.high for key, own in found.items() if own.reached}
    table = _with_speedup(tables).merge(goals, how="left", on=["kind", "data"])
    table["target_seconds"] = table["key"].map(reached).astype(float)
    budgets = at_equal_budgets(tables).drop(columns="top1")
    concluded = table[["key", "speedup", "efficiency", "target", "target_seconds"]]
    return concluded.merge(budgets, how="left", on="key")


def _with_speedup(tables: Tables) -> Frame:
    finished = tables.finished
    match = [name for name in ("kind", *tables.axes, "seed") if name not in ("workers", *SPLIT)]
    one = finished.loc[num_processes(finished) == 1, [*match, "images_per_second"]]
    one = one.drop_duplicates(match)
    table = tables.runs.merge(one, how="left", on=match, suffixes=("", "_of_one"))
    rate = table["images_per_second"].where(table["status"] == "finished").astype(float)
    table["speedup"] = rate / table["images_per_second_of_one"].astype(float)
    table["efficiency"] = table["speedup"] / num_processes(table)
    return table


def equal_time(tables: Tables, _: Configuration, points: Frame) -> Row:
    """Return the columns on validation top-1 at equal budgets.

    `top1_equal_samples` is the mean at the end of training, after equal numbers of images.
    `top1_equal_time` and `top1_equal_updates` are means at the moment when `common_seconds` or
    `common_updates` are spent; they leave out runs that had no evaluation until this moment.
    """
    values = at_equal_budgets(tables)
    own = values[values.index.isin(points.index)]
    row = interval(own["top1"], POINTS).named("top1_equal_samples")
    for budget, name in _BUDGETS.items():
        row[f"common_{name}"] = own[f"common_{budget}"].min()
        row |= interval(own[f"top1_equal_{budget}"], POINTS).named(f"top1_equal_{budget}")
    return row


@lru_cache(maxsize=1)
def at_equal_budgets(tables: Tables) -> Frame:
    """Return one row per finished point, with the index of `runs`.

    `top1` is the last accuracy of the point identified by `key`. The two budgets are `time` and
    `updates`. `common_time` and `common_updates` are the amounts that all compared points have
    spent: the common time [s] and the common number of updates of the module. `top1_equal_time` and
    `top1_equal_updates` are the accuracies of the last evaluation within these budgets; NaN if
    there is none.
    """
    finished = tables.finished
    given = (name for name in tables.facets if not is_of_scheme(name))
    same = ["kind", "workers", *(name for name in given if not name.startswith(_RATES))]
    ends = last_evaluations(tables, finished).set_index("key")["top1"]
    values = finished[["key"]].assign(top1=finished["key"].map(ends))
    for budget, name in _BUDGETS.items():
        common = finished.groupby(same, dropna=False)[name].transform("min").astype(float)
        values[f"common_{budget}"] = common
        values[f"top1_equal_{budget}"] = [
            _top1_by(tables.curve(run["key"]), run, name, limit)
            for (_, run), limit in zip(finished.iterrows(), common, strict=True)
        ]
    return values


def _top1_by(curve: Frame, run: Frame, name: str, limit: float) -> float:
    """Return the top-1 of the last evaluation within the limit; NaN without such an evaluation.

    A run that ends within the limit counts by its last evaluation, even if that took place after
    the limit: its time may be later than that of the last training step.
    """
    rows = curve if run[name] <= limit else curve[curve[name] <= limit]
    return math.nan if rows.empty else float(rows["top1"].iloc[-1])


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
