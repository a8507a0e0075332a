"""Draws why schemes differ: on what workers spend their time, and how stale pushes are."""

import altair as alt

from paceline.analysis.frames import Row
from paceline.analysis.phase_shares import PHASES
from paceline.report.chart.chart_style import (
    COMPUTE_COLOUR,
    EXCHANGE_COLOUR,
    HIGHLIGHT,
    ROWS,
    Chart,
    faded,
    short,
    specification,
    tips,
)
from paceline.report.findings import StudyFindings
from paceline.report.situations import situations
from paceline.report.words import scheme_words

_WORDS = {"compute": "compute", "exchange": "exchange and waiting", "loading": "waiting for data"}
_COLOURS = [COMPUTE_COLOUR, EXCHANGE_COLOUR, "#E69F00"]
_HEIGHT = 20
_SHARES = (
    "How workers spend their time: mean over workers and finished seeds. Waiting for other workers "
    "counts as exchange; the part of an exchange that computing hides does not."
)
_STALENESS = (
    "Staleness: the number of updates that a server applied between a worker's read of the weights "
    "and the arrival of its gradient. Points: means; lines: from the 5 % to the 95 % quantile of "
    "all pushes. Schemes without a server have no staleness."
)


def phase_chart(findings: StudyFindings) -> Chart | None:
    """Return stacked shares of a worker's time, a bar per scheme; None if nothing was recorded."""
    table = findings.known("phase_compute")
    rows: list[Row] = [
        {
            "situation": each.name,
            "scheme": scheme_words(row),
            "phase": _WORDS[phase],
            "order": order,
            "share": short(row[f"phase_{phase}"]),
            "seconds": short(row[f"phase_{phase}_seconds"], 4),
        }
        for each in situations(findings)
        for _, row in each.of(table).iterrows()
        for order, phase in enumerate(PHASES.values())
    ]
    if not rows:
        return None
    domain = list(_WORDS.values())
    marks = (
        alt.Chart(ROWS)
        .mark_bar()
        .encode(
            y=alt.Y("scheme:N", title=None),
            x=alt.X(
                "share:Q",
                title="share of a worker's time",
                scale=alt.Scale(domain=[0, 1]),
                axis=alt.Axis(format="~%"),
            ),
            order="order:Q",
            color=alt.Color(
                "phase:N",
                title=None,
                scale=alt.Scale(domain=domain, range=_COLOURS),
                legend=alt.Legend(orient="top"),
            ),
            opacity=faded(),
            tooltip=tips(
                scheme="scheme",
                phase="on",
                share=("share", ".1%"),
                seconds=("seconds of a worker", ",.4~g"),
            ),
        )
        .properties(width=520, height=alt.Step(_HEIGHT))
        .add_params(HIGHLIGHT)
    )
    return Chart("phases", "Where the time goes", _SHARES, specification(marks), rows, True)


def staleness_chart(findings: StudyFindings) -> Chart | None:
    """Return mean and spread of staleness, a row per scheme; None if no scheme has a server."""
    table = findings.known("pushes")
    rows: list[Row] = [
        {"situation": each.name, "scheme": scheme_words(row)}
        | {name: short(row[f"pushes_{name}"]) for name in ("mean", "low", "median", "high")}
        for each in situations(findings)
        for _, row in each.of(table).iterrows()
    ]
    if not rows:
        return None
    shown = tips(
        scheme="scheme",
        mean=("mean", ".4~g"),
        low=("5 % quantile", ""),
        median=("median", ""),
        high=("95 % quantile", ""),
    )
    base = alt.Chart(ROWS).encode(y=alt.Y("scheme:N", title=None), opacity=faded(), tooltip=shown)
    marks = base.mark_rule(strokeWidth=2, color="#CC79A7").encode(
        x=alt.X("low:Q", title="staleness, updates"), x2="high:Q"
    ) + base.mark_point(filled=True, size=70, color="#CC79A7").encode(x="mean:Q")
    spec = specification(
        marks.properties(width=520, height=alt.Step(_HEIGHT)).add_params(HIGHLIGHT)
    )
    return Chart("staleness", "How stale gradients are", _STALENESS, spec, rows, True)
