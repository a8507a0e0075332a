"""Draws the best that tuning finds against the number of trials that it may spend."""

import altair as alt

from paceline.analysis.configuration import groups
from paceline.analysis.searches import tuning_axes
from paceline.report.chart.chart_style import (
    HIGHLIGHT,
    ROWS,
    Chart,
    faded,
    scheme_colour,
    short,
    specification,
    tips,
)
from paceline.report.findings import StudyFindings
from paceline.report.words import scheme_words, value_words

_CAPTION = (
    "Expected top-1 on validation of the best of this number of trials of rate and momentum, a "
    "line per scheme. A scheme whose line still rises at its end would gain from more trials."
)


def tuning_chart(findings: StudyFindings) -> Chart | None:
    """Return the chart, with a panel per setting that was tuned apart; None without trials."""
    curve = findings.concluded["tuning_curve"]
    axes = [name for name in tuning_axes(findings.tables) if name in curve]
    if curve.empty:
        return None
    varying = [name for name in axes if curve[name].nunique(dropna=False) > 1]
    settings = [n for n in varying if n != "scheme" and not n.startswith("scheme.")] or ["workers"]
    rows = []
    for values, same in groups(curve, [name for name in settings if name in curve]):
        panel = ", ".join(value_words(name, value) for name, value in values.items())
        rows += [
            {
                "panel": panel,
                "scheme": scheme_words(row),
                "trials": int(row["trials"]),
                "best": short(row["expected_best"]),
            }
            for _, row in same.iterrows()
        ]
    panels, names = (list(dict.fromkeys(str(row[n]) for row in rows)) for n in ("panel", "scheme"))
    shown = tips(scheme="scheme", trials=("trials", ""), best=("expected best top-1", ".2%"))
    y = alt.Y("best:Q", title="top-1, validation", scale=alt.Scale(zero=False))
    marks = (
        alt.Chart(ROWS)
        .mark_line(point=alt.OverlayMarkDef(size=12), clip=True)
        .encode(
            x=alt.X("trials:Q", title="trials"),
            y=y.axis(format="~%", tickCount=6),
            color=scheme_colour(names),
            opacity=faded(0.9),
            tooltip=shown,
        )
        .properties(width=230, height=180)
        .add_params(HIGHLIGHT)
        .facet(facet=alt.Facet("panel:N", title=None, sort=panels), columns=2)
        .resolve_scale(y="independent")
    )
    return Chart("tuning", "What tuning found", _CAPTION, specification(marks), rows)
