"""Draws the updates per second of each collective against workers, and what a model predicts."""

import altair as alt
import pandas as pd

from paceline.analysis.configuration import groups
from paceline.analysis.exchanges import Exchanges
from paceline.analysis.frames import Frame, Row
from paceline.report.chart.chart_style import (
    COLOURS,
    HIGHLIGHT,
    LOG_TICKS,
    ROWS,
    Chart,
    Marks,
    colour,
    faded,
    short,
    specification,
    tips,
)
from paceline.report.number_format import size
from paceline.report.words import value_words

_CAPTION = (
    "Updates per second: 1 / seconds of an exchange, after FireCaffe's figure 5. Points and full "
    "lines: {kinds}, means over turns with 95 % intervals; dashed lines: predicted by the "
    "collective's cost model."
)


def collective_chart(exchanges: Exchanges, seconds: Frame) -> Chart | None:
    """Return the chart, with a panel per cluster and number of bytes; None if nothing finished."""
    finished = seconds[seconds["status"] == "finished"]
    if finished.empty:
        return None
    names = ["cluster", *exchanges.facets, "num_bytes"]
    varying = [name for name in names if finished[name].nunique(dropna=False) > 1]
    rows: list[Row] = []
    for values, same in groups(finished, varying or ["cluster"]):
        panel = ", ".join(_words(name, value) for name, value in values.items() if pd.notna(value))
        rows += [_row(panel, row) for _, row in same.iterrows()]
    kinds = " or ".join(dict.fromkeys(finished["kind"]))
    collectives = list(dict.fromkeys(str(row["scheme"]) for row in rows))
    spec = specification(_marks(collectives))
    title = "Updates per second against workers"
    return Chart("exchanges", title, _CAPTION.format(kinds=kinds), spec, rows)


def _words(name: str, value: object) -> str:
    if name == "num_bytes":
        return size(float(str(value)))
    return str(value).replace("_", " ") if name == "cluster" else value_words(name, value)


def _row(panel: str, row: Frame) -> Row:
    low, high = row["seconds_low"], row["seconds_high"]
    # an interval that reaches down to no time at all has no upper end on this axis
    ends = (1 / high if pd.notna(high) else None, 1 / low if pd.notna(low) and low > 0 else None)
    predicted = row["predicted_seconds"]
    return {
        "panel": panel,
        "scheme": str(row["collective"]),
        "workers": int(row["workers"]),
        "rate": short(row["updates_per_second"], 4),
        "low": short(ends[0], 4),
        "high": short(ends[1], 4),
        "predicted": short(1 / predicted, 4),
    }


def _marks(collectives: list[str]) -> Marks:
    x = alt.X("workers:O", title="workers", axis=alt.Axis(labelAngle=0))
    axis = alt.Axis(values=LOG_TICKS, format=",~g")
    y = alt.Y("rate:Q", title="updates/s", scale=alt.Scale(type="log"), axis=axis)
    colours = [*COLOURS.values()][: len(collectives)]
    base = alt.Chart().encode(x=x, color=colour(collectives, colours))
    shown = tips(
        scheme="collective",
        workers="workers",
        rate=("updates/s", ",.4~g"),
        predicted=("predicted", ",.4~g"),
    )
    return (
        alt.layer(
            base.mark_rule().encode(y="low:Q", y2="high:Q", opacity=faded(0.6)),
            base.mark_line(strokeWidth=1.5).encode(y=y, opacity=faded()),
            base.mark_point(filled=True, size=30).encode(y=y, opacity=faded(), tooltip=shown),
            base.mark_line(strokeDash=[4, 3], strokeWidth=1).encode(
                y="predicted:Q", opacity=faded(0.8)
            ),
            data=ROWS,
        )
        .properties(width=190, height=150)
        .facet(facet=alt.Facet("panel:N", title=None), columns=3)
        .resolve_scale(y="independent")
        .add_params(HIGHLIGHT)
    )
