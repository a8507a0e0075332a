"""Averages the curves of each configuration over seeds, and finds who is ahead at which time."""

import pandas as pd

from paceline.analysis.configuration import groups, situation_columns, with_processes
from paceline.analysis.frames import Frame, Row
from paceline.analysis.tables import Tables

_COLUMNS = ("evaluation", "n", "samples", "seconds", "top1", "is_front")


def mean_curves(tables: Tables) -> Frame:
    """Return one row per configuration and evaluation, with means over finished seeds.

    `evaluation` counts from 1; evaluations that a seed lacks are left out. `top1` is that of
    validation, a share. `is_front` is 1 where no other configuration of the same situation (kind,
    workers, settings that are not the scheme's) had a top1 as high by then.
    """
    axes = ["kind", "data", *tables.axes]
    runs = tables.finished[["key", *axes]]
    curves = tables.curves.sort_values(["key", "samples"], kind="stable")
    curves = curves.assign(evaluation=curves.groupby("key", sort=False).cumcount() + 1)
    rows: list[Row] = []
    for configuration, points in groups(runs, axes) if len(runs) else []:
        own = curves[curves["key"].isin(points["key"])].groupby("evaluation")
        means = own[["samples", "seconds", "top1"]].mean().assign(n=own.size())
        means = means[means["n"] == len(points)].reset_index()
        rows += [configuration | row for row in means.to_dict("records")]
    made = pd.DataFrame(rows, columns=[*axes, *_COLUMNS])
    same = situation_columns(tables.axes)
    fronts = [_front(rows) for _, rows in groups(with_processes(made), same)] if rows else []
    return made.assign(is_front=pd.concat(fronts).reindex(made.index) if fronts else [])


def _front(rows: Frame) -> Frame:
    """Return 1 for each row with a top1 above those of all rows that took as long or less."""
    ordered = rows.sort_values(["seconds", "top1"], ascending=[True, False], kind="stable")
    before = ordered["top1"].cummax().shift(fill_value=-1.0)
    return (ordered["top1"] > before).astype(int)
