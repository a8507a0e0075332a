"""Sums up a study as a whole: what faults did, whether clocks agree, and what is used how often."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from paceline.analysis.comparison import FAULT
from paceline.analysis.configuration import groups
from paceline.analysis.frames import Frame
from paceline.report.agreement import agreement, predictions
from paceline.report.answer import choices
from paceline.report.choice import NONE, UNKNOWN, Choice
from paceline.report.findings import StudyFindings
from paceline.report.number_format import plural
from paceline.report.phrases import say
from paceline.report.situations import Situation
from paceline.report.words import scheme_words, value_words

MOST = 8  # situations with a sentence each; more are counted by what to use


class UseCount(NamedTuple):
    """Count of what is to be used in the situations of one size.

    `words`: the size and the number of situations. `rows`: of `decision`, those of schemes to use.
    """

    words: str
    use: str
    rows: Frame


def asks_of_time(findings: StudyFindings) -> bool:
    """Return True if a study judges clocks or predictions, and which scheme to use only besides."""
    return bool([*agreement(findings), *predictions(findings)])


def summary_sentences(findings: StudyFindings) -> list[str]:
    """Return sentences on the study as a whole: on faults and clocks, and on what is best."""
    if findings.tables.finished.empty:
        return [say("nothing_finished")]
    texts = [*fault_sentences(findings), *agreement(findings), *predictions(findings)]
    found = choices(findings)
    if len(found) > MOST and not texts:
        used = Counter(
            each.use if each.use not in (NONE, UNKNOWN) else "unknown" for _, each in found
        )
        uses = "; ".join(f"{name} in {number}" for name, number in used.most_common())
        texts.append(say("uses", situations=len(found), uses=uses))
    elif not found and not texts:
        texts.append(say("nothing_to_compare"))
    return texts


def use_counts(findings: StudyFindings) -> list[UseCount]:
    """Count what to use by size, if situations are many and the study asks for that first."""
    found = choices(findings)
    if len(found) <= MOST or asks_of_time(findings):
        return []
    counts = []
    for size in dict.fromkeys(each.size_words for each, _ in found):
        own = [(each, chosen) for each, chosen in found if each.size_words == size]
        words = f"{size}, {plural(len(own), 'situation')}"
        rows = pd.DataFrame([chosen.row for _, chosen in own if chosen.is_scheme])
        counts.append(UseCount(words, _uses(own), rows))
    return counts


def _uses(found: Sequence[tuple[Situation, Choice]]) -> str:
    """Say how often each is to be used, and in how many of them all others are behind it."""
    parts = []
    for use, number in Counter(chosen.use for _, chosen in found).most_common():
        own = [(each, chosen) for each, chosen in found if chosen.use == use]
        others = [each for each, chosen in found if chosen.use != use]
        first = sum(chosen.tied.empty for _, chosen in own)
        only = _only([each for each, _ in own], others)
        numbers = {"number": number, "first": first, "is_scheme": own[0][1].is_scheme}
        parts.append(say("use", numbers, use=use, only=only))
    return "; ".join(parts)


def _only(own: Sequence[Situation], others: Sequence[Situation]) -> str:
    """Name the one value of a setting that `own` situations have and no other has, if any."""
    for name, value in own[0].values.items() if others else ():
        values = {str(each.values[name]) for each in own}
        if len(values) == 1 and values.isdisjoint(str(each.values[name]) for each in others):
            return value_words(name, value)
    return ""


def fault_sentences(findings: StudyFindings) -> list[str]:
    """Return a sentence for each fault; none if the study has none."""
    table = findings.known("fault_seconds_ratio_n")
    each = groups(table, [FAULT]) if len(table) else []
    return [_fault(group[FAULT], rows) for group, rows in each]


def _fault(fault: str, rows: Frame) -> str:
    all_continue, all_end = rows["n_finished"] == rows["n"], rows["n_finished"] == 0
    longest = rows.loc[all_end, "fault_seconds_to_end"].max()
    parts = [
        say("fault_all_continue", names=_each(rows[all_continue], "fault_scheme")),
        say("fault_some_continue", names=_each(rows[~all_continue & ~all_end], "fault_some")),
        say(
            "fault_all_end",
            names=[scheme_words(row) for _, row in rows[all_end].iterrows()],
            # rounded up to the hundredths that are shown, so that no number is above its bound
            seconds=None if pd.isna(longest) else math.ceil(100 * longest) / 100,
        ),
    ]
    return say("fault", fault=say(f"fault_{fault}"), parts=parts)


def _each(rows: Frame, phrase: str) -> list[str]:
    """Name schemes, with the ratio of seconds if its interval does not contain 1."""
    return [
        say(
            phrase,
            row,
            scheme=scheme_words(row),
            ratio=row["fault_seconds_ratio_mean"],
            differs=row["fault_seconds_ratio_low"] > 1 or row["fault_seconds_ratio_high"] < 1,
        )
        for _, row in rows.iterrows()
    ]
