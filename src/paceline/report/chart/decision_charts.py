"""Draws which scheme to use: a comparison of schemes per situation, and a map of situations."""

from collections.abc import Sequence
from functools import partial

import pandas as pd

from paceline.analysis.frames import Frame, Row
from paceline.report.answer import FEW, ONE, UNKNOWN, Choice, choice
from paceline.report.chart.chart_style import FAINT, TIER_COLOURS, Chart, chart, short
from paceline.report.findings import RATE, Situation, StudyFindings, of_several_schemes
from paceline.report.how_it_was_run import BANDWIDTH
from paceline.report.number_format import count, plural, shown, times
from paceline.report.tiers import NOT_JUDGED, tier_of
from paceline.report.words import scheme_name, scheme_words, value_words, values_words

_FEWEST = 6  # situations, below which sentences say the same


def decision_chart(findings: StudyFindings) -> Chart | None:
    """Return the chart that compares speed-up and accuracy of schemes in each situation.

    It has a row per scheme in a situation. None if no situation of several workers has several
    schemes, or if the study compares all configurations instead.
    """
    if findings.compares_all:
        return None
    decision, margin = findings.concluded["decision"], findings.tables.about["margin"]
    side, other = _side(decision)
    rows = [
        _decision_row(each.name, place, row, side)
        for each in of_several_schemes(findings)
        for place, (_, row) in enumerate(_best_first(each.of(decision)).iterrows())
    ]
    return chart(
        "decision",
        rows,
        other=other,
        margin=margin,
        has_target=any(row["target_known"] for row in rows),
        has_accuracy=any(row["points"] is not None for row in rows),
    )


def _side(decision: Frame) -> tuple[str, str]:
    """Return the prefix of the columns to show on differences of accuracy, and the other side in
    words.

    Accuracies are compared with one worker, like times, if its accuracy is known; else with the
    reference scheme.
    """
    if decision["one_worker_top1_difference_mean"].notna().any():
        return "one_worker_", ONE
    references = [name for name in decision["reference"] if name]
    return "", scheme_name(references[0]) if references else ""


def _best_first(rows: Frame) -> Frame:
    seconds = rows["target_seconds_mean"].where(rows["tier"] != "never")
    order = ["seconds", "images_per_second_mean"]
    return rows.assign(seconds=seconds).sort_values(order, ascending=[True, False])


def _decision_row(situation: str, place: int, row: Frame, side: str) -> Row:
    runs, tier = row["n"] - row["n_failed"], tier_of(row)
    lost = row["n_reached"] < runs
    reached = f"{row['n_reached']:.0f} of {plural(runs, 'run')}"
    ends = ("mean", "low", "high")
    speedup, low, high = (short(row[f"speedup_{end}"], 6) for end in ends)
    points = [short(100 * row[f"{side}top1_difference_{end}"], 6) for end in ends]
    return {
        "situation": situation,
        "place": place,
        "scheme": scheme_words(row),
        "tier": tier,
        "tier_colour": TIER_COLOURS.get(tier, FAINT),
        "target_known": bool(pd.notna(row["target"])),
        "speedup": speedup,
        "low": low,
        "high": high,
        "instead": _instead(tier, reached) if lost else "",
        "reached": reached,
        **dict(zip(("points", "points_low", "points_high"), points, strict=True)),
        "rate": short(row["images_per_second_mean"], 6),
        "rate_text": shown(row["images_per_second_mean"], count),
        "cost": shown(None if lost else row["worker_seconds"], times),
    }


def _instead(tier: str, reached: str) -> str:
    if tier == NOT_JUDGED:
        return f"{reached}, rate at the edge"
    return f"never ({reached})" if tier == "never" else f"{reached} reached it"


def map_chart(findings: StudyFindings) -> Chart | None:
    """Return the map of what to use, in which each axis is a setting of the situations.

    None for fewer than _FEWEST situations, or if they differ in fewer than two settings.
    """
    several = [e for e in of_several_schemes(findings) if e.values.get(RATE) != "by_rule"]
    decision = findings.concluded["decision"]
    axes = _axes(several)
    if len(several) < _FEWEST or len(axes) < 2:
        return None
    *panels, down, across = sorted(axes, key=lambda name: (name == "workers", axes[name]))
    words = partial(_axis_words, findings.tables.about["settings"].get("workload.num_bytes"))
    rows = [
        {
            "panel": values_words(each.values, panels),
            "down": words(down, each),
            "across": words(across, each),
            "words": each.words,
            **_cell(choice(each.of(decision))),
        }
        for each in several
    ]
    names = [scheme_words(row) for each in several for _, row in each.of(decision).iterrows()]
    orders = {
        "down": list(dict.fromkeys(words(down, each) for each in _ascending(several, down))),
        "across": list(dict.fromkeys(words(across, each) for each in _ascending(several, across))),
    }
    drawn = [name for name in dict.fromkeys(names) if any(row["scheme"] == name for row in rows)]
    return chart("map", rows, names, drawn=drawn, **orders)


def _axes(several: Sequence[Situation]) -> dict[str, int]:
    """Return the settings by which situations differ, each with its number of values."""
    names = [name for name in (several[0].values if several else ()) if name not in ("kind", RATE)]
    counts = {name: len({str(each.values[name]) for each in several}) for name in names}
    return {name: count for name, count in counts.items() if count > 1}


def _ascending(several: Sequence[Situation], name: str) -> list[Situation]:
    """Sort situations by a setting; situations in which it has no value come last."""
    return sorted(several, key=lambda each: (pd.isna(each.values[name]), each.values[name]))


def _axis_words(num_bytes: float | None, name: str, situation: Situation) -> str:
    """Say the value of a setting; for links also the time to send a gradient of known size."""
    value = situation.values[name]
    words = value_words(name, value)
    if name != BANDWIDTH or num_bytes is None:
        return words
    return f"{words}\na gradient in {0 if pd.isna(value) else num_bytes / value:.2g} s"


def _cell(chosen: Choice) -> Row:
    """Return the texts of a cell of the map, the scheme that gives its colour, and its paleness.

    A cell is pale if other schemes are tied with its scheme.
    """
    scheme, tied, pale = "", len(chosen.tied), False
    if chosen.row is None:
        speed, others = "no run", "reaches it"
    elif chosen.use in (UNKNOWN, FEW):
        speed, others = "unknown:", "runs missed it" if chosen.use == UNKNOWN else "few seeds"
    elif chosen.use == ONE:
        scheme, speed = ONE, ONE
        others = f"{shown(chosen.row['speedup_mean'], times)} at best"
    else:
        scheme, speed = chosen.use, shown(chosen.row["speedup_mean"], times)
        others, pale = f"{tied} tied" if tied else "no tie", tied > 0
    tied_with = ", ".join(scheme_words(row) for _, row in chosen.tied.iterrows())
    known = {"tied_with": tied_with, "scheme": scheme, "speed": speed}
    return known | {"others": others, "pale": pale}
