"""Draws accuracy against time, with the front of what no other scheme had reached by then."""

import altair as alt
import pandas as pd

from paceline.analysis.frames import Row
from paceline.report.chart.chart_style import (
    FAINT,
    HIGHLIGHT,
    LOG_TICKS,
    ROWS,
    Chart,
    Marks,
    scheme_colour,
    short,
    specification,
    tips,
)
from paceline.report.findings import StudyFindings
from paceline.report.situations import situations
from paceline.report.target_origin import validation_images
from paceline.report.words import scheme_words

_CAPTION = (
    "Mean top-1 on {images} over finished seeds against seconds of training, a line per scheme. "
    "Large points: no other scheme of the situation was as accurate at that time. Faint: schemes "
    "that never led. Dashed: the target."
)
_MOST = 4000  # points of the page, 75 bytes each


def time_chart(findings: StudyFindings) -> Chart | None:
    """Return the chart; None without curves."""
    curves = findings.concluded["mean_curves"]
    if curves.empty or curves["seconds"].isna().all():
        return None
    decision = findings.concluded["decision"]
    rows: list[Row] = []
    for each in situations(findings):
        targets = each.of(decision)["target"].dropna()
        of_top1 = (findings.tables.about["target"] or {"metric": "top1"})["metric"] == "top1"
        target = float(targets.iloc[0]) if len(targets) and of_top1 else None
        for _, row in each.of(curves).iterrows():
            if pd.notna(row["seconds"]) and row["seconds"] > 0:
                rows.append(_row(each.name, row, target))
    ahead = {(row["situation"], row["scheme"]) for row in rows if row["front"]}
    rows = [row | {"ahead": (row["situation"], row["scheme"]) in ahead} for row in _thinned(rows)]
    names = list(dict.fromkeys(str(row["scheme"]) for row in rows))
    if not rows:
        return None
    spec = specification(_marks(names).add_params(HIGHLIGHT))
    caption = _CAPTION.format(images=validation_images(findings))
    return Chart("time", "Accuracy against time", caption, spec, rows, True)


def _thinned(rows: list[Row]) -> list[Row]:
    """Return at most about _MOST points: of each line its last, and every so many before it."""
    every = -(-len(rows) // _MOST)
    lines: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        lines.setdefault((row["situation"], row["scheme"]), []).append(row)
    return [row for line in lines.values() for row in line[::-1][::every][::-1]]


def _row(situation: str, row: Row, target: float | None) -> Row:
    return {
        "situation": situation,
        "scheme": scheme_words(row),
        "seconds": short(row["seconds"]),
        "top1": short(row["top1"]),
        "front": int(row["is_front"]),
        "n": int(row["n"]),
        "target": target,
    }


def _marks(names: list[str]) -> Marks:
    axis = alt.Axis(values=LOG_TICKS, format="~s")
    x = alt.X("seconds:Q", scale=alt.Scale(type="log", nice=False), axis=axis, title="seconds")
    y = alt.Y(
        "top1:Q",
        scale=alt.Scale(zero=False),
        axis=alt.Axis(format="~%", tickCount=8),
        title="top-1, validation",
    )
    shown = tips(
        scheme="scheme", seconds=("seconds", ",.4~g"), top1=("top-1", ".1%"), n=("seeds", "")
    )
    legend = alt.Legend(columns=1, symbolType="stroke", labelLimit=220)
    base = alt.Chart(ROWS).encode(x=x, y=y, color=scheme_colour(names, legend=legend))
    seen = alt.when("highlight == datum.scheme || (highlight == '' && datum.ahead)")
    opacity = seen.then(alt.value(0.85)).otherwise(alt.value(0.15))
    lines = base.mark_line(strokeWidth=1.6).encode(opacity=opacity)
    size = alt.condition("datum.front", alt.value(55), alt.value(9))
    points = base.mark_point(filled=True).encode(size=size, opacity=opacity, tooltip=shown)
    rule = alt.Chart(ROWS).mark_rule(color=FAINT, strokeDash=[5, 4]).encode(y="min(target):Q")
    return (rule + lines + points).properties(width=520, height=320)
