"""Accuracy at equal time and at equal updates, beside that at equal samples.

The common time: the shortest total `seconds` of the finished points with as many workers, of the
same kind and settings, whatever their scheme and rate; the common updates likewise.
"""

import math

import pandas as pd

from paceline.analysis.configuration import configurations
from paceline.analysis.intervals import interval
from paceline.analysis.summary import counts
from paceline.analysis.tables import Frame, Tables

BUDGETS = {"time": "seconds", "updates": "updates"}
RATES = ("training.lr", "training.rate")  # axes that begin so are searched, not compared at


def equal_time(tables: Tables) -> Frame:
    """Return a row per configuration: the common `seconds` and `updates`, `top1` (validation) then.

    `top1`: at the end of the run's own budget. A finished run without an evaluation by the common
    time is left out of `top1_equal_time` and its n.
    """
    values = at_equal_budgets(tables)
    rows = []
    for configuration, points in configurations(tables.runs, tables.axes):
        row = configuration | {"n": len(points)} | counts(points)
        own = values[values.index.isin(points.index)]
        row |= interval(own["top1"]).named("top1")
        for budget in BUDGETS:
            row[f"common_{BUDGETS[budget]}"] = own[f"common_{budget}"].min()
            row |= interval(own[f"top1_equal_{budget}"]).named(f"top1_equal_{budget}")
        rows.append(row)
    return pd.DataFrame(rows)


def at_equal_budgets(tables: Tables) -> Frame:
    """Return a row per finished point: key, top1, `common_` and `top1_equal_` of each budget."""
    finished = tables.finished
    same = ["kind", "workers", *(n for n in tables.facets if not n.startswith(RATES))]
    values = finished[["key", "top1"]].copy()
    for budget, name in BUDGETS.items():
        common = finished.groupby(same, dropna=False)[name].transform("min").astype(float)
        values[f"common_{budget}"] = common
        values[f"top1_equal_{budget}"] = [
            _top1_by(tables.curves[tables.curves["key"] == run["key"]], run, name, limit)
            for (_, run), limit in zip(finished.iterrows(), common, strict=True)
        ]
    return values


def _top1_by(curve: Frame, run: Frame, name: str, limit: float) -> float:
    """Return the top-1 of the last row with `name` <= limit; NaN where there is none.

    A run that had ended by then has all its rows: its last snapshot may carry a later time than
    its last step.
    """
    rows = curve if run[name] <= limit else curve[curve[name] <= limit]
    return math.nan if rows.empty else float(rows.sort_values("samples")["top1"].iloc[-1])
