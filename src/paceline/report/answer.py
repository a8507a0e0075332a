"""Writes the answer in plain words: a sentence per situation, from decision.csv alone."""

from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from paceline.analysis.tables import Frame
from paceline.report.agreement_sentences import agreement
from paceline.report.choice import LOST, ONE, Choice, choice
from paceline.report.fault_table import fault_sentences
from paceline.report.findings import StudyFindings
from paceline.report.number_format import (
    count,
    decimals,
    percent,
    percent_points,
    plural,
    times,
)
from paceline.report.prediction_sentences import predictions
from paceline.report.situations import RATE, Situation, of_several_schemes
from paceline.report.target_sentences import is_of_loss, validation_images
from paceline.report.tiers import MEANINGS, NOT_JUDGED, is_at_edge, tier_of
from paceline.report.words import scheme_words

HEDGE = (
    "Intervals are of 95 %, and at most one family of comparisons in twenty holds a false one: "
    "times between all schemes of a situation by Holm's tests, accuracies against one of them, or "
    "against one worker, by Dunnett's. How many times as fast is an interval by itself, and is "
    "not said where a run did not get there; who lost such a run is behind, without a test, where "
    "all runs of the first got there. "
    "Where the search for rates was repeated, accuracies include what another would change; times "
    "do not. Not told apart is not equal."
)
MOST = 8  # situations with a sentence each; more are counted by what to use


class Answer(NamedTuple):
    """Answer for a situation.

    `use`: the scheme, ONE if none is shown to be faster than one worker, "" if that is not known,
    or no run reached the target, or there is none.
    `text`: what it brings, in a sentence. `details`: what else is known of it and of the others, a
    short sentence each.
    """

    situation: str
    use: str
    text: str
    details: Sequence[str]


def answers(findings: StudyFindings) -> list[Answer]:
    """Return an answer for each situation with several schemes, at tuned rates if there are any."""
    return [_answer(findings, each) for each in answered(findings)]


def answered(findings: StudyFindings) -> list[Situation]:
    """Return the situations that answers are for, in their order."""
    several = of_several_schemes(findings)
    tuned = {_without_rate(each) for each in several if each.values.get(RATE) == "tuned"}
    return [
        each
        for each in several
        if each.values.get(RATE) != "by_rule" or _without_rate(each) not in tuned
    ]


def schemes_to_use(findings: StudyFindings) -> list[tuple[Situation, Frame]]:
    """Return each situation in which a scheme is faster than one worker, with its decision."""
    decision = findings.concluded["decision"]
    found = [(each, choice(each.of(decision))) for each in answered(findings)]
    return [(each, chosen.row) for each, chosen in found if chosen.is_scheme]


def asks_of_time(findings: StudyFindings) -> bool:
    """Return True if a study judges clocks or predictions, and which scheme to use only besides."""
    return bool([*agreement(findings), *predictions(findings)])


def summary_sentences(findings: StudyFindings) -> list[str]:
    """Return sentences on the study as a whole: on faults and clocks, and on what is best."""
    if findings.tables.finished.empty:
        return ["No point has finished yet, so there is no answer: see below what happened."]
    texts = [*fault_sentences(findings), *agreement(findings), *predictions(findings)]
    found = answers(findings)
    if len(found) > MOST and not texts:
        best = pd.Series([each.use or "not known" for each in found]).value_counts()
        uses = "; ".join(f"{name} in {number}" for name, number in best.items())
        texts.append(f"Of {len(found)} situations, the one to use is: {uses}.")
    elif not found and not texts:
        texts.append("Nothing can be said between schemes: no two of them share a situation.")
    return texts


def _without_rate(situation: Situation) -> tuple:
    return tuple(str(value) for name, value in situation.values.items() if name != RATE)


def _answer(findings: StudyFindings, situation: Situation) -> Answer:
    rows = situation.of(findings.concluded["decision"])
    words = situation.title
    chosen = choice(rows)
    if chosen.row is None:
        return _by_rate(findings, rows, words)
    details = [*_against(chosen.row), *_others(rows, chosen)]
    first, reaches = scheme_words(chosen.row), _reaches(findings, chosen.row)
    if chosen.is_scheme:
        return Answer(words, chosen.use, reaches, details)
    if chosen.use == LOST:
        return Answer(words, "", f"{first} is first; {reaches}", details)
    shown = "" if chosen.row["speedup_high"] < 1 else "no speed-up is shown; "
    return Answer(words, ONE, f"{shown}of several, {first} is first; {reaches}", details)


def _by_rate(findings: StudyFindings, rows: Frame, words: str) -> Answer:
    """Name the scheme with the most images/s, where none reaches the target or there is none.

    It is not one to use: nothing says whether it learns.
    """
    none = ""
    if (rows["tier"] == "never").any():
        none = f"No run reached {target_words(findings, rows.iloc[0])}."
        if any(tier_of(row) == NOT_JUDGED for _, row in rows.iterrows()):
            none += " With a best rate at an edge of what was tried, that judges no scheme."
    rates = rows["images_per_second_mean"].dropna()
    if rates.empty:
        return Answer(words, "", f"{none} No run finished.".strip(), [])
    first = rows.loc[rates.idxmax()]
    rate = _spread(first, "images_per_second", count)
    most = f"the most images per second: {scheme_words(first)}, {rate}"
    if none:
        return Answer(words, "", none, [f"{most[:1].upper()}{most[1:]}."])
    return Answer(words, "", f"{most}.", [])


def target_words(findings: StudyFindings, row: Frame) -> str:
    """Say the target of a row, as in "87.7 % on validation images"."""
    asked = findings.tables.about["target"]
    if is_of_loss(asked):
        return f"a validation loss of {decimals(row['target'])}"
    top5 = " (top-5)" if asked is not None and asked["metric"] == "top5" else ""
    return f"{percent(row['target'])}{top5} on {validation_images(findings)}"


def _reaches(findings: StudyFindings, row: Frame) -> str:
    target, runs = target_words(findings, row), int(row["n"] - row["n_failed"])
    reached = f"{row['n_reached']:.0f} of {plural(runs, 'run')} reached {target}"
    if pd.isna(row["speedup_mean"]):
        return f"{reached}{_of_one_worker(row)}."
    speed = _spread(row, "speedup", times)
    return f"{speed} times as fast as the best one worker; {reached}."


def _of_one_worker(row: Frame) -> str:
    """Say how many of the best one-worker runs got there, where a lost run leaves no speed-up."""
    if not row["baseline"] or not row.get("baseline_n"):  # or of a table of older code
        return ""
    runs = f"{row['baseline_reached']:.0f} of {row['baseline_n']:.0f}"
    return f", and {runs} of one worker: how much sooner is not known"


def _spread(row: Frame, name: str, form) -> str:
    mean, low, high = (row.get(f"{name}_{part}") for part in ("mean", "low", "high"))
    if pd.isna(mean):  # or of a table of older code
        return ""
    return form(mean) if pd.isna(low) else f"{form(mean)} ({form(low)} to {form(high)})"


def _others(rows: Frame, chosen: Choice) -> list[str]:
    """Name the other schemes by tier; nothing is said against one at the edge of its search."""
    tiers = [tier_of(row) for _, row in rows.iterrows()]
    named = {tier: rows[[each == tier for each in tiers]] for tier in MEANINGS}
    texts = [
        (f"Not told from it{_of(chosen.tied)}", _with_speeds(chosen.tied)),
        (f"Behind{_of(named['behind'])}", _with_speeds(named["behind"])),
        ("Never there", _names(named["never"])),
        (
            "Not judged, since the best rate lies at an edge of what was tried",
            _names(named[NOT_JUDGED]),
        ),
    ]
    return [f"{start}: {names}." for start, names in texts if names]


def _of(rows: Frame) -> str:
    return " (times as fast as one worker)" if rows["speedup_mean"].notna().any() else ""


def _with_speeds(rows: Frame) -> str:
    """Name schemes with how many times as fast as the best one worker each is, where known.

    Of those that lost runs before the target, also how many got there.
    """
    return "; ".join(
        f"{scheme_words(row)} {times(row['speedup_mean'])}{_lost(row)}"
        if not pd.isna(row["speedup_mean"])
        else f"{scheme_words(row)}{_lost(row)}"
        for _, row in rows.iterrows()
    )


def _lost(row: Frame) -> str:
    runs = row["n"] - row["n_failed"]
    return (
        f" ({row['n_reached']:.0f} of {runs:.0f} runs got there)" if row["n_reached"] < runs else ""
    )


def _names(rows: Frame) -> str:
    return "; ".join(scheme_words(row) for _, row in rows.iterrows())


def _against(row: Frame) -> list[str]:
    """Hold the scheme to use against one worker and against the reference, if that is another."""
    lines = []
    if accuracy := _accuracy(row, "one_worker_"):
        lines.append(f"Against one worker: {accuracy}.")
    faster, accuracy = _spread(row, "reference_speedup", times), _accuracy(row, "")
    parts = [f"{faster} times as fast" if faster else "", accuracy]
    if row["scheme"] != row["reference"] and any(parts):
        reference = scheme_words({"scheme": row["reference"]})
        lines.append(f"Against {reference}: {', '.join(part for part in parts if part)}.")
    return lines


def _accuracy(row: Frame, side: str) -> str:
    """Say what a scheme costs in accuracy; where its rate lies at an edge that is not judged."""
    points = _spread(row, f"{side}top1_difference", percent_points)
    if not points:
        return ""
    words = {"better": "higher", "worse": "lower"}
    judged = words.get(str(row[f"{side}accuracy"]), "not told apart")
    if row[f"{side}within_margin"] == 1:
        judged = f"{judged}, and within the margin"
    if is_at_edge(row):
        judged = "not judged, since its best rate lies at an edge of what was tried"
    return f"accuracy {points} points, {judged}"
