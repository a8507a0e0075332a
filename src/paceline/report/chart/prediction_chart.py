"""Draws what is predicted of real processes against what they did."""

from collections.abc import Sequence
from typing import NamedTuple

import altair as alt

from paceline.analysis.frames import Row
from paceline.report.chart.chart_style import (
    FAINT,
    HIGHLIGHT,
    LOG_TICKS,
    ROWS,
    Chart,
    Marks,
    faded,
    scheme_colour,
    short,
    specification,
    tips,
)
from paceline.report.findings import StudyFindings
from paceline.report.words import scheme_words, value_words


class _Predicted(NamedTuple):
    """Chart by its `name`, of the columns that begin with `prefix`, with words for them."""

    name: str
    prefix: str
    what: str
    title: str
    caption: str


_DRAWN = (
    _Predicted(
        "predicted",
        "rate_",
        "images/s",
        "Predicted against observed throughput",
        "Images per second, harmonic means over seeds; on the line both are equal. Crosses: "
        "configurations that the model was calibrated with, which are not judged.",
    ),
    _Predicted(
        "predicted_exchange",
        "exchange_",
        "seconds of exchange",
        "Predicted against observed seconds of exchange",
        "What messages and servers add to a step of paced processes; on the line both are equal.",
    ),
)


def prediction_charts(findings: StudyFindings) -> list[Chart]:
    """Return a chart of images per second and one of the exchange, where they were predicted."""
    return [chart for each in _DRAWN if (chart := _chart(findings, each)) is not None]


def _chart(findings: StudyFindings, drawn: _Predicted) -> Chart | None:
    table = findings.known(f"{drawn.prefix}n")
    for side in ("observed", "predicted"):  # axes are logarithmic
        table = table[table[f"{drawn.prefix}{side}"] > 0] if len(table) else table
    if table.empty:
        return None
    names = [name for name in findings.varying if name in table]
    rows = [_row(row, names, drawn) for _, row in table.iterrows()]
    spec = specification(_marks(rows, drawn.what).add_params(HIGHLIGHT))
    return Chart(drawn.name, drawn.title, drawn.caption, spec, rows)


def _row(row: Row, names: Sequence[str], drawn: _Predicted) -> Row:
    settings = [value_words(name, row[name]) for name in ("workers", *names)]
    return {
        "scheme": scheme_words(row),
        "settings": ", ".join(settings),
        "observed": short(row[f"{drawn.prefix}observed"]),
        "predicted": short(row[f"{drawn.prefix}predicted"]),
        "error": short(row[f"{drawn.prefix}error"], 4),
        "verdict": str(row[f"{drawn.prefix}verdict"]),
    }


def _marks(rows: Sequence[Row], what: str) -> Marks:
    ends = [float(row[name]) for row in rows for name in ("observed", "predicted")]
    low, high = min(ends) / 1.15, max(ends) * 1.15
    scale = alt.Scale(type="log", domain=[low, high], nice=False)
    axis = alt.Axis(values=LOG_TICKS, format="~s")
    diagonal = alt.Chart(alt.InlineData([{"at": low}, {"at": high}])).mark_line(color=FAINT)
    names = list(dict.fromkeys(str(row["scheme"]) for row in rows))
    points = (
        alt.Chart(ROWS)
        .mark_point(filled=False, size=45)
        .encode(
            x=alt.X("observed:Q", title=f"observed {what}", scale=scale, axis=axis),
            y=alt.Y("predicted:Q", title=f"predicted {what}", scale=scale, axis=axis),
            color=scheme_colour(names),
            shape=alt.condition(
                "datum.verdict == 'calibrated'", alt.value("cross"), alt.value("circle")
            ),
            opacity=faded(0.9),
            tooltip=tips(
                scheme="scheme",
                settings="settings",
                observed=("observed", ",.4~g"),
                predicted=("predicted", ",.4~g"),
                error=("error", "+.0%"),
                verdict="verdict",
            ),
        )
    )
    return (diagonal.encode(x="at:Q", y="at:Q") + points).properties(width=440, height=440)
