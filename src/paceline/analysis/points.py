"""Compares single points: speed-up, time to the target, accuracy at equal budgets, and mean curves.

The common time of several points is the smallest total `seconds` of those that finished with the
same number of workers, kind and settings, over all schemes and rates. The common number of updates
is defined likewise.
"""

import math
from functools import lru_cache

import pandas as pd

from paceline.analysis.configuration import (
    SPLIT,
    Configuration,
    groups,
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
    """Return one row per point of `runs`, by `key`; a number that does not exist is NaN.

    `speedup` and `efficiency` compare with one process of the same scheme, settings and seed.
    `target_seconds` is the time of the first evaluation at which the `target` counts as reached.
    `at_equal_budgets` documents the other columns.
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

    `top1_equal_samples` is the mean at the end; `top1_equal_time` and `top1_equal_updates` are
    means when `common_seconds` or `common_updates` are spent, without runs that were not evaluated
    by then.
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

    Its columns are `key`, `top1`, and for both budgets `common_<budget>` and `top1_equal_<budget>`.
    """
    finished = tables.finished
    same = ["kind", "workers", *(n for n in tables.facets if not n.startswith(_RATES))]
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
    """Return the top-1 of the last evaluation within the limit, or NaN.

    A run that ends within the limit counts by its last evaluation, whose time may be later than
    that of its last step.
    """
    rows = curve if run[name] <= limit else curve[curve[name] <= limit]
    return math.nan if rows.empty else float(rows["top1"].iloc[-1])


def mean_curves(tables: Tables) -> Frame:
    """Return one row per configuration and evaluation, with means over finished seeds.

    `evaluation` counts from 1; evaluations that a seed lacks are left out. `top1` is of validation.
    `is_front` is 1 where no other configuration of the same situation reached that top1 by then.
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
    """Return 1 for each row with a higher top1 than all rows that took no longer, else 0."""
    ordered = rows.sort_values(["seconds", "top1"], ascending=[True, False], kind="stable")
    before = ordered["top1"].cummax().shift(fill_value=-1.0)
    return (ordered["top1"] > before).astype(int)
