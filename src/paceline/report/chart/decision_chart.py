"""Draws what decides between schemes: time to the target, accuracy, images per second."""

from typing import Any

import altair as alt
import pandas as pd

from paceline.analysis.frames import Frame, Row
from paceline.report.chart.chart_style import (
    FAINT,
    HIGHLIGHT,
    LOG_TICKS,
    ROWS,
    TIER_COLOURS,
    Chart,
    Marks,
    faded,
    short,
    specification,
    tips,
)
from paceline.report.choice import NOT_JUDGED, ONE, tier_of
from paceline.report.findings import StudyFindings
from paceline.report.number_format import count, plural, shown, times
from paceline.report.situations import of_several_schemes
from paceline.report.words import scheme_words

_CAPTION = (
    "Speed-up: how many times as fast as the best single worker (dashed line) a scheme reaches the "
    "target; if some runs missed it, how many reached it. Accuracy: top-1 minus that of {other}, "
    "in points, with the margin of {margin:g} in grey. Bars: images per second. Lines are 95 % "
    "intervals; those of accuracies are simultaneous over the schemes of a situation."
)
_TIPS = tips(
    scheme="scheme",
    tier="tier",
    speedup=("times as fast as one worker", ".3~g"),
    low=("at least", ".3~g"),
    high=("at most", ".3~g"),
    reached="reached the target",
    points=("accuracy, points", "+.2f"),
    rate_text="images/s",
    cost="worker-seconds to the target",
)
_ROW = 24  # height of a scheme
_PADDING = {"left": 35, "right": 5, "top": 5, "bottom": 5}  # where a reader's font is wider


def decision_chart(findings: StudyFindings) -> Chart | None:
    """Return the chart, with a row per scheme; None if no situation has several schemes."""
    decision, several = findings.concluded["decision"], of_several_schemes(findings)
    side, other = _side(decision)
    rows = [row for each in several for row in _rows(each.name, each.of(decision), side)]
    if not rows:
        return None
    margin = findings.tables.about["margin"]
    parts = [_names()]
    if any(row["target_known"] for row in rows):
        parts.append(_speedups())
    if any(row["points"] is not None for row in rows):
        parts.append(_accuracies(margin))
    parts.append(_rates())
    marks = alt.hconcat(*parts, spacing=10).add_params(HIGHLIGHT).resolve_scale(y="independent")
    marks = marks.properties(padding=_PADDING)
    caption = _CAPTION.format(other=other, margin=margin)
    return Chart("decision", "Which scheme", caption, specification(marks), rows, True)


def _side(decision: Frame) -> tuple[str, str]:
    """Return the prefix of the columns with differences of accuracy, and whose accuracy is taken.

    That is one worker's, as for times, where it is known; else the reference scheme's.
    """
    if decision.get("one_worker_top1_difference_mean", pd.Series()).notna().any():
        return "one_worker_", ONE
    references = [name for name in decision["reference"] if name]
    return "", scheme_words({"scheme": references[0]}) if references else ""


def _rows(situation: str, decision: Frame, side: str) -> list[Row]:
    order = decision.assign(
        seconds=decision["target_seconds_mean"].where(decision["tier"] != "never"),
    ).sort_values(
        ["seconds", "images_per_second_mean"], ascending=[True, False], na_position="last"
    )
    return [_row(situation, place, row, side) for place, (_, row) in enumerate(order.iterrows())]


def _row(situation: str, place: int, row: Frame, side: str) -> Row:
    lost = row["n_reached"] < row["n"] - row["n_failed"]
    runs = plural(int(row["n"] - row["n_failed"]), "run")
    reached = f"{row['n_reached']:.0f} of {runs}"
    tier = tier_of(row)
    return {
        "situation": situation,
        "place": place,
        "scheme": scheme_words(row),
        "tier": tier,
        "tier_colour": TIER_COLOURS.get(tier, FAINT),
        "target_known": bool(pd.notna(row["target"])),
        "speedup": short(row["speedup_mean"], 6),
        "low": short(row["speedup_low"], 6),
        "high": short(row["speedup_high"], 6),
        "instead": _instead(tier, reached) if lost else "",
        "reached": reached,
        "points": short(100 * row[f"{side}top1_difference_mean"], 6),
        "points_low": short(100 * row[f"{side}top1_difference_low"], 6),
        "points_high": short(100 * row[f"{side}top1_difference_high"], 6),
        "rate": short(row["images_per_second_mean"], 6),
        "rate_text": shown(row["images_per_second_mean"], count),
        "cost": shown(None if lost else row["worker_seconds"], times),
    }


def _instead(tier: str, reached: str) -> str:
    if tier == NOT_JUDGED:
        return f"{reached}, rate at the edge"
    return f"never ({reached})" if tier == "never" else f"{reached} reached it"


def _y(**axis: Any) -> alt.Y:
    sort = alt.EncodingSortField("place", op="min", order="ascending")
    return alt.Y("scheme:N", title=None, sort=sort, axis=alt.Axis(**axis) if axis else None)


def _names() -> Marks:
    """Show the tier of each scheme, in words, beside its name."""
    return (
        alt.Chart(ROWS)
        .mark_text(align="left", dx=-26)
        .encode(
            y=_y(labelPadding=8, labelLimit=240, ticks=False, domain=False),
            text="tier:N",
            opacity=faded(),
            tooltip=_TIPS,
        )
        .properties(width=56, height=alt.Step(_ROW))
    )


def _speedups() -> Marks:
    base = alt.Chart(ROWS).encode(y=_y(), opacity=faded(), tooltip=_TIPS)
    scale = alt.Scale(type="log", nice=False, padding=8)  # no interval ends at the frame
    title = "times as fast to the target as one worker"
    x = alt.X("low:Q", scale=scale, title=title, axis=alt.Axis(values=LOG_TICKS, format="~g"))
    points = base.mark_point(filled=True, size=75, opacity=1)
    one = alt.Chart(alt.InlineData([{"one": 1}]))  # so that there is a tick, whoever is compared
    return (
        one.mark_rule(color=FAINT, strokeDash=[3, 3]).encode(x="one:Q")
        + base.mark_rule(strokeWidth=2).encode(
            x=x, x2="high:Q", color=alt.Color("tier_colour:N", scale=None)
        )
        + points.encode(x=alt.X("speedup:Q"), color=alt.Color("tier_colour:N", scale=None))
        + base.mark_text(align="left", fontSize=11).encode(x=alt.value(14), text="instead:N")
    ).properties(width=230, height=alt.Step(_ROW))


def _accuracies(margin: float) -> Marks:
    base = alt.Chart(ROWS).encode(y=_y(), opacity=faded(), tooltip=_TIPS)
    x = alt.X("points_low:Q", title="top-1, points", axis=alt.Axis(format="+~f", tickCount=6))
    band = alt.Chart(alt.InlineData([{"low": -margin, "high": margin}]))
    zero = alt.Chart(alt.InlineData([{"zero": 0}]))
    return (
        band.mark_rect(color=FAINT, opacity=0.18).encode(x="low:Q", x2="high:Q")
        + zero.mark_rule(color=FAINT, strokeDash=[3, 3]).encode(x="zero:Q")
        + base.mark_rule(strokeWidth=2, color="#009E73").encode(x=x, x2="points_high:Q")
        + base.mark_point(filled=True, size=75, color="#009E73").encode(x=alt.X("points:Q"))
    ).properties(width=200, height=alt.Step(_ROW))


def _rates() -> Marks:
    base = alt.Chart(ROWS).encode(
        y=_y(), x=alt.X("rate:Q", title="images/s", axis=alt.Axis(tickCount=3, format="~s"))
    )
    bars = base.mark_bar(color=FAINT, height={"band": 0.6}).encode(opacity=faded(0.6))
    texts = base.mark_text(align="left", dx=3, fontSize=10).encode(
        text="rate_text:N", opacity=faded(), tooltip=_TIPS
    )
    return (bars + texts).properties(width=110, height=alt.Step(_ROW))
