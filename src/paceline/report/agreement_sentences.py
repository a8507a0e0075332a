"""Writes sentences on the agreement of the virtual clock with the wall clock."""

from paceline.analysis.clocks import POINTS, WALL
from paceline.analysis.configuration import groups, matching
from paceline.analysis.tables import Frame
from paceline.report.findings import StudyFindings
from paceline.report.number_format import decimals, percent_points, plural
from paceline.report.words import configuration_words

_MOST = 3  # configurations that a sentence names


def has_twins(findings: StudyFindings) -> bool:
    """Return True if the study has runs on both clocks."""
    kinds = set(findings.tables.runs["kind"])
    return "virtual" in kinds and bool(kinds.intersection(WALL))


def agreement(findings: StudyFindings) -> list[str]:
    """Return two sentences for each kind that the virtual clock is compared with."""
    if not has_twins(findings):
        return []
    table = findings.concluded["clock_agreement"]
    if not len(table):
        return ["No virtual point has a twin of equal settings on the wall clock."]
    texts = []
    for group, rows in groups(table, ["against"]):
        texts += [
            _within_sentence(findings, rows, group["against"]),
            _accuracy_sentence(findings, rows),
        ]
    return texts


def _within_sentence(findings: StudyFindings, rows: Frame, against: object) -> str:
    speeds = matching(rows, {"what": "images_per_second"})
    stales = matching(rows, {"what": "staleness_mean"})
    unpaired = len(matching(speeds, {"verdict": "unknown"}))
    rest = f"; {plural(unpaired, 'configuration')} without a finished pair" if unpaired else ""
    return (
        f"Virtual against {against}: images/s agree within 10 % {_agreeing(findings, speeds)}, "
        f"mean staleness {_agreeing(findings, stales)}{rest}."
    )


def _agreeing(findings: StudyFindings, rows: Frame) -> str:
    """State the number of configurations that agree, and name those that agree least.

    These are all that are outside, up to _MOST, or else the one that is closest to the limit.
    """
    inside, outside = (matching(rows, {"verdict": word}) for word in ("within", "outside"))
    known = len(inside) + len(outside)
    if not known:
        return "nowhere, for want of pairs"
    worst = outside.iloc[:_MOST] if len(outside) else inside.iloc[:1]
    named = "; ".join(_value_text(findings, row) for _, row in worst.iterrows())
    within = f"in {len(inside)} of {plural(known, 'configuration')}"
    return f"{within} (furthest: {named}{_more_text(len(outside))})"


def _value_text(findings: StudyFindings, row: Frame) -> str:
    ratio = row["measure"] == "ratio"
    text = f"ratio {decimals(row['mean'])}" if ratio else f"{row['mean']:+.2f} updates"
    return f"{_named(findings, row)}: {text}, n = {row['n']:.0f}"


def _accuracy_sentence(findings: StudyFindings, rows: Frame) -> str:
    rows = matching(rows, {"what": "test_top1"})
    inside, outside, unknown = (
        matching(rows, {"verdict": word}) for word in ("within", "outside", "unknown")
    )
    text = (
        f"Test top-1 at the most workers, virtual minus {rows['against'].iloc[0]}: the 95 % "
        f"interval lies within ±{100 * POINTS:g} points in {len(inside)} of "
        f"{plural(len(inside) + len(outside), 'configuration')}"
    )
    text += f" ({_interval_texts(findings, inside)})" if len(inside) else ""
    text += f", not for {_interval_texts(findings, outside)}" if len(outside) else ""
    few = plural(len(unknown), "configuration")
    rest = f"; {few} with fewer than two seeds in common" if len(unknown) else ""
    return f"{text}{rest}."


def _interval_texts(findings: StudyFindings, rows: Frame) -> str:
    texts = [
        f"{_named(findings, row)}: {percent_points(row['low'])} to {percent_points(row['high'])}, "
        f"n = {row['n']:.0f}"
        for _, row in rows.iloc[:_MOST].iterrows()
    ]
    return "; ".join(texts) + _more_text(len(rows))


def _more_text(number: int) -> str:
    return f"; {number - _MOST} more" if number > _MOST else ""


def _named(findings: StudyFindings, row: Frame) -> str:
    return configuration_words(row, ["workers", *findings.varying])
