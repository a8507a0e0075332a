"""Computes numbers of single runs (speed-up, time to the target) and mean curves."""

import pandas as pd

from paceline.analysis.configuration import (
    SPLIT,
    groups,
    num_processes,
    situation_columns,
    with_processes,
)
from paceline.analysis.frames import Frame, Row
from paceline.analysis.tables import Tables
from paceline.analysis.time_to_target import crossings, targets

_OF_CURVES = ("evaluation", "n", "samples", "seconds", "top1", "is_front")


def points(tables: Tables) -> Frame:
    """Return one row per point (a single run), named by `key`; a number that is not known is NaN.

    `speedup` and `efficiency` compare with the run of one process with the same scheme, settings
    and seed. `target_seconds` is the time of the first evaluation at which the `target` counts as
    reached.
    """
    goals, found = targets(tables)[["kind", "data", "target"]], crossings(tables, "seconds")
    reached = {key: own.high for key, own in found.items() if own.reached}
    table = _with_speedup(tables).merge(goals, how="left", on=["kind", "data"])
    table["target_seconds"] = table["key"].map(reached).astype(float)
    return table[["key", "speedup", "efficiency", "target", "target_seconds"]]


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
