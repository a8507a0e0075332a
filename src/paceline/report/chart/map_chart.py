"""Draws a map: which scheme is best in which situation, and where others are tied with it."""

from collections.abc import Sequence
from functools import partial

import altair as alt
import pandas as pd

from paceline.analysis.frames import Frame, Row
from paceline.report.chart.chart_style import ROWS, Chart, Marks, scheme_colour, specification, tips
from paceline.report.choice import ONE, UNKNOWN, Choice, choice
from paceline.report.findings import StudyFindings
from paceline.report.how_it_was_run import BANDWIDTH
from paceline.report.number_format import shown, times
from paceline.report.situations import RATE, Situation, of_several_schemes
from paceline.report.words import scheme_words, value_words

_CAPTION = (
    "The scheme with the shortest time to the target in each situation, and how many times as fast "
    "as the best single worker it is. Lighter: other schemes are statistically tied with it; their "
    "number is below. Grey: no scheme is significantly faster than one worker, no run reaches the "
    "target, or the speed-up is unknown because runs of one worker missed the target."
)
_GREY = "#d0d0d0"  # where no scheme is to be used
_LINES = r"split(datum.label, '\n')"
_FEWEST = 6  # situations, below which sentences say the same


def map_chart(findings: StudyFindings) -> Chart | None:
    """Return the map over two settings; None for few situations, or if only one setting varies."""
    several = [e for e in of_several_schemes(findings) if e.values.get(RATE) != "by_rule"]
    decision = findings.concluded["decision"]
    axes = _axes(several)
    if len(several) < _FEWEST or len(axes) < 2:
        return None
    *panels, down, across = sorted(axes, key=lambda name: (name == "workers", axes[name]))
    words = partial(_axis_words, findings.tables.about["settings"].get("workload.num_bytes"))
    rows = [_row(e, e.of(decision), panels, words(down, e), words(across, e)) for e in several]
    names = [scheme_words(row) for e in several for _, row in e.of(decision).iterrows()]
    orders = [
        list(dict.fromkeys(words(name, e) for e in _ascending(several, name)))
        for name in (down, across)
    ]
    spec = specification(_marks(list(dict.fromkeys(names)), *orders))
    return Chart("map", "Which scheme in which situation", _CAPTION, spec, rows)


def _axes(several: Sequence[Situation]) -> dict[str, int]:
    """Return the settings by which situations differ, with how many values each has."""
    names = [name for name in (several[0].values if several else ()) if name not in ("kind", RATE)]
    counts = {name: len({str(each.values[name]) for each in several}) for name in names}
    return {name: count for name, count in counts.items() if count > 1}


def _ascending(several: Sequence[Situation], name: str) -> list[Situation]:
    """Sort by a setting; those in which it is not set come last."""
    unset = [each for each in several if pd.isna(each.values[name])]
    known = [each for each in several if not pd.isna(each.values[name])]
    return [*sorted(known, key=lambda each: each.values[name]), *unset]


def _axis_words(num_bytes: float | None, name: str, situation: Situation) -> str:
    """Say a setting; of links, a second line says how long a gradient takes, if its size is set."""
    value = situation.values[name]
    words = value_words(name, value)
    if name != BANDWIDTH or num_bytes is None:
        return words
    return f"{words}\na gradient in {0 if pd.isna(value) else num_bytes / value:.2g} s"


def _row(situation: Situation, rows: Frame, panels: Sequence[str], down: str, across: str) -> Row:
    chosen = choice(rows)
    return {
        "panel": ", ".join(value_words(name, situation.values[name]) for name in panels),
        "down": down,
        "across": across,
        "words": situation.words,
        "tied_with": ", ".join(scheme_words(row) for _, row in chosen.tied.iterrows()),
        **_cell(chosen),
    }


def _cell(chosen: Choice) -> Row:
    """Return what a cell says in two lines, its colour's scheme, and whether it is pale."""
    if chosen.row is None:
        return {"scheme": "", "speed": "no run", "others": "reaches it", "pale": False}
    if chosen.use == UNKNOWN:
        return {"scheme": "", "speed": "unknown:", "others": "runs missed it", "pale": False}
    speed, tied = shown(chosen.row["speedup_mean"], times), len(chosen.tied)
    if chosen.use == ONE:
        return {"scheme": ONE, "speed": ONE, "others": f"{speed} at best", "pale": False}
    others = f"{tied} tied" if tied else "no tie"
    return {"scheme": chosen.use, "speed": speed, "others": others, "pale": tied > 0}


def _marks(names: Sequence[str], down: Sequence[str], across: Sequence[str]) -> Marks:
    base = alt.Chart().encode(
        x=alt.X(
            "across:O", title=None, sort=list(across), axis=alt.Axis(labelAngle=0, labelExpr=_LINES)
        ),
        y=alt.Y("down:O", title=None, sort=list(down), axis=alt.Axis(labelExpr=_LINES)),
        tooltip=tips(
            words="situation",
            scheme="use",
            speed="times as fast as one worker",
            tied_with="tied with",
        ),
    )
    text = {"color": "#000000", "fontSize": 11}
    none = f"datum.scheme == '' || datum.scheme == '{ONE}'"
    colour = scheme_colour(names)
    return (
        alt.layer(
            base.mark_rect(color="#ffffff"),  # pale is pale on a dark page as well
            base.mark_rect(stroke="#ffffff").encode(
                color=alt.condition(none, alt.value(_GREY), colour),
                opacity=alt.condition("datum.pale", alt.value(0.3), alt.value(0.75)),
            ),
            base.mark_text(dy=-7, **text).encode(text="speed:N"),
            base.mark_text(dy=8, **text).encode(text="others:N"),
            data=ROWS,
        )
        .properties(width=alt.Step(92), height=alt.Step(48))
        .facet(facet=alt.Facet("panel:N", title=None), columns=2)
    )
