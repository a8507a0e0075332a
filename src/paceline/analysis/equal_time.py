"""Computes the accuracy at equal time and at equal updates, beside that at equal samples.

The common time is the smallest total `seconds` of the finished points with the same number of
workers, kind and settings, over all schemes and rates. The common number of updates is defined
likewise.
"""

import math

from paceline.analysis.configuration import Configuration, RowOf
from paceline.analysis.frames import Frame, Row
from paceline.analysis.intervals import interval
from paceline.analysis.statistics.space import POINTS
from paceline.analysis.tables import Tables
from paceline.analysis.time_to_target import last_evaluations

BUDGETS = {"time": "seconds", "updates": "updates"}
RATES = ("training.lr", "training.rate")  # prefixes of axes that are tuned, not compared


def equal_time(tables: Tables) -> RowOf:
    """Return what fills the columns on the validation top-1 at equal budgets.

    `top1_equal_samples` is that of the last evaluation; `top1_equal_time` and `top1_equal_updates`
    those when `common_seconds` or `common_updates` are spent. A finished run without an
    evaluation within the common budget is left out of that mean.
    """
    values = at_equal_budgets(tables)

    def row(_: Configuration, points: Frame) -> Row:
        own = values[values.index.isin(points.index)]
        row = interval(own["top1"], POINTS).named("top1_equal_samples")
        for budget, name in BUDGETS.items():
            row[f"common_{name}"] = own[f"common_{budget}"].min()
            row |= interval(own[f"top1_equal_{budget}"], POINTS).named(f"top1_equal_{budget}")
        return row

    return row


def at_equal_budgets(tables: Tables) -> Frame:
    """Return one row per finished point, by the index of `runs`.

    Columns: `key`, `top1`, and for both budgets the columns of equal_time.
    """
    finished = tables.finished
    same = ["kind", "workers", *(n for n in tables.facets if not n.startswith(RATES))]
    ends = last_evaluations(tables, finished).set_index("key")["top1"]
    values = finished[["key"]].assign(top1=finished["key"].map(ends))
    for budget, name in BUDGETS.items():
        common = finished.groupby(same, dropna=False)[name].transform("min").astype(float)
        values[f"common_{budget}"] = common
        values[f"top1_equal_{budget}"] = [
            _top1_by(tables.curve(run["key"]), run, name, limit)
            for (_, run), limit in zip(finished.iterrows(), common, strict=True)
        ]
    return values


def _top1_by(curve: Frame, run: Frame, name: str, limit: float) -> float:
    """Return the top-1 of the last row of `curve` with `name` <= limit, or NaN without one.

    If the whole run lies within the limit, its last row is taken in any case, since the time of the
    last snapshot may be later than that of the last step.
    """
    rows = curve if run[name] <= limit else curve[curve[name] <= limit]
    return math.nan if rows.empty else float(rows.sort_values("samples")["top1"].iloc[-1])
