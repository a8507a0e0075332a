"""Draws test accuracy against the number of workers: a panel per scheme, never all in one."""

import altair as alt
import pandas as pd

from paceline.analysis.comparison import reference_scheme
from paceline.analysis.configuration import PROCESSES, groups, situation_columns
from paceline.analysis.configuration_table import NAME
from paceline.analysis.frames import Frame, Row
from paceline.report.chart.chart_style import (
    FAINT,
    HIGHLIGHT,
    ROWS,
    Chart,
    Marks,
    faded,
    short,
    specification,
    tips,
)
from paceline.report.findings import StudyFindings
from paceline.report.situations import situations
from paceline.report.words import scheme_words

_CAPTION = (
    "Top-1 on test at the end of the budget against the number of workers, a panel per scheme, "
    "with 95 % intervals; {reference} is shown in grey in each. Diverged runs are in no mean."
)


def scale_chart(findings: StudyFindings) -> Chart | None:
    """Return the chart; None if the study has one number of workers, or no accuracy."""
    table = findings.concluded[NAME]
    metric = "test_top1" if table["test_top1_mean"].notna().any() else "top1"
    known = table[table[f"{metric}_mean"].notna()]
    if known["workers"].nunique() < 2:
        return None
    reference = reference_scheme(findings.tables.runs)
    columns = situation_columns(findings.tables.axes)
    if PROCESSES in columns:  # a line by workers would leave out of how many processes each is
        return None
    settings = [name for name in columns if name in known and name != "workers"]
    rows: list[Row] = []
    several = situations(findings)
    for values, same in groups(known, settings):
        of = [each.name for each in several if _agree(each.values, values)]
        if same["workers"].nunique() > 1:
            rows += [
                {"situation": name} | row for name in of for row in _rows(same, reference, metric)
            ]
    if not rows:
        return None
    caption = _CAPTION.format(reference=scheme_words({"scheme": reference}))
    spec = specification(_marks().add_params(HIGHLIGHT))
    return Chart("scale", "Accuracy by number of workers", caption, spec, rows, True)


def _agree(situation: Row, values: Row) -> bool:
    return all(
        (pd.isna(value) and pd.isna(situation[name])) or situation[name] == value
        for name, value in values.items()
    )


def _rows(same: Frame, reference: str, metric: str) -> list[Row]:
    """Return a row per scheme and number of workers; each panel also has the reference's."""
    drawn = {scheme_words(row) for _, row in same.iterrows()}
    grey = same[same["scheme"] == reference]
    others = sorted(drawn - {scheme_words({"scheme": reference})})
    return [
        *(_row(row, panel, metric, own=False) for panel in others for _, row in grey.iterrows()),
        *(_row(row, scheme_words(row), metric, own=True) for _, row in same.iterrows()),
    ]


def _row(row: Frame, panel: str, metric: str, *, own: bool) -> Row:
    ends = {end: row[f"{metric}_{end}"] for end in ("mean", "low", "high")}
    shares = {end: None if pd.isna(v) else min(max(float(v), 0.0), 1.0) for end, v in ends.items()}
    return {
        "scheme": panel,
        "own": int(own),
        "workers": int(row["workers"]),
        **{name: short(share) for name, share in shares.items()},
        "n": int(row[f"{metric}_n"]),
        "diverged": int(row["n_diverged"]),
    }


def _marks() -> Marks:
    x = alt.X("workers:O", title=None, axis=alt.Axis(labelAngle=0))
    y = alt.Y(
        "mean:Q", scale=alt.Scale(zero=False), axis=alt.Axis(format="~%", tickCount=5), title=None
    )
    shown = tips(
        scheme="scheme",
        workers="workers",
        mean=("top-1, test", ".2%"),
        low=("at least", ".2%"),
        high=("at most", ".2%"),
        n=("seeds", ""),
        diverged=("diverged", ""),
    )
    colour = alt.condition("datum.own", alt.value("#0072B2"), alt.value(FAINT))
    order = alt.Detail("own:N")
    base = alt.Chart().encode(x=x, y=y, color=colour, detail=order, opacity=faded())
    return (
        alt.layer(
            base.mark_line(strokeWidth=1.6),
            base.mark_rule().encode(y="low:Q", y2="high:Q"),
            base.mark_point(filled=True, size=35).encode(tooltip=shown),
            data=ROWS,
        )
        .properties(width=150, height=110)
        .facet(facet=alt.Facet("scheme:N", title=None), columns=4)
    )
