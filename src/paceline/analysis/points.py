"""Computes the conclusions on single points: speed-up and time to the target."""

import math

import pandas as pd

from paceline.analysis.configuration import SPLIT, num_processes
from paceline.analysis.equal_time import at_equal_budgets
from paceline.analysis.frames import Frame
from paceline.analysis.tables import Tables
from paceline.analysis.time_to_target import (
    TargetMetric,
    first_crossing,
    target_metric,
    targets,
)

CONCLUDED = ("speedup", "efficiency", "target", "target_seconds")


def points(tables: Tables) -> Frame:
    """Return one row per point of `runs`, by `key`; a number that does not exist is NaN.

    `speedup` and `efficiency` are against one process of the same scheme, settings and seed.
    `target` is what is to be reached, of the study's metric; `target_seconds` is the time of the
    first evaluation that is as good. `common_*` and `top1_equal_*` are those of at_equal_budgets.
    """
    table = _with_speedup(tables)
    goals, metric = targets(tables)[["kind", "data", "target"]], target_metric(tables)
    table = table.merge(goals, how="left", on=["kind", "data"])
    table["target_seconds"] = [
        _seconds(tables, key, target, metric)
        for key, target in zip(table["key"], table["target"], strict=True)
    ]
    budgets = at_equal_budgets(tables).drop(columns="top1")
    return table[["key", *CONCLUDED]].merge(budgets, how="left", on="key")


def _with_speedup(tables: Tables) -> Frame:
    finished = tables.finished
    match = [name for name in ("kind", *tables.axes, "seed") if name not in ("workers", *SPLIT)]
    one = finished.loc[num_processes(finished) == 1, [*match, "images_per_second"]]
    one = one.drop_duplicates(match)
    table = tables.runs.merge(one, how="left", on=match, suffixes=("", "_alone"))
    rate = table["images_per_second"].where(table["status"] == "finished").astype(float)
    table["speedup"] = rate / table["images_per_second_alone"].astype(float)
    table["efficiency"] = table["speedup"] / num_processes(table)
    return table


def _seconds(tables: Tables, key: str, target: float, metric: TargetMetric) -> float:
    if pd.isna(target):
        return math.nan
    crossing = first_crossing(tables.curve(key), target, metric)
    return crossing[0] if crossing else math.nan
