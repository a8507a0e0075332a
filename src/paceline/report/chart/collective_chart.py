"""Draws updates per second of each collective by number of workers, measured and predicted."""

import pandas as pd

from paceline.analysis.configuration import groups
from paceline.analysis.exchanges import Exchanges
from paceline.analysis.frames import Frame, Row
from paceline.report.chart.chart_style import Chart, chart, short
from paceline.report.number_format import size
from paceline.report.words import value_words


def collective_chart(exchanges: Exchanges, seconds: Frame) -> Chart | None:
    """Return the chart, with a panel per cluster and size of message; None if nothing finished."""
    finished = seconds[seconds["status"] == "finished"]
    names = ["cluster", *exchanges.facets, "num_bytes"]
    varying = [name for name in names if finished[name].nunique(dropna=False) > 1] or ["cluster"]
    rows: list[Row] = []
    for values, own in groups(finished, varying):
        panel = ", ".join(_words(name, value) for name, value in values.items() if pd.notna(value))
        rows += [_row(panel, row) for _, row in own.iterrows()]
    collectives = list(dict.fromkeys(row["scheme"] for row in rows))
    kinds = " or ".join(dict.fromkeys(finished["kind"]))
    return chart("exchanges", rows, collectives=collectives, kinds=kinds)


def _words(name: str, value: object) -> str:
    if name == "num_bytes":
        return size(float(str(value)))
    return str(value).replace("_", " ") if name == "cluster" else value_words(name, value)


def _row(panel: str, row: Frame) -> Row:
    low, high = row["seconds_low"], row["seconds_high"]
    return {
        "panel": panel,
        "scheme": str(row["collective"]),
        "workers": int(row["workers"]),
        "rate": short(row["updates_per_second"], 4),
        "low": short(1 / high, 4),
        # an interval that reaches down to no time at all has no upper end on this axis
        "high": short(1 / low, 4) if low > 0 else None,
        "predicted": short(1 / row["predicted_seconds"], 4),
    }
