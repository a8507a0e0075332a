"""Counts what is to be used where a study has too many situations for a row each."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from paceline.analysis.tables import Frame
from paceline.report.answer import MOST, answered, asks_of_time
from paceline.report.choice import Choice, choice
from paceline.report.findings import StudyFindings
from paceline.report.number_format import plural
from paceline.report.situations import Situation
from paceline.report.words import value_words


class Counted(NamedTuple):
    """Count of what is to be used in the situations of one size.

    `words`: the size and the number of situations. `rows`: of `decision`, those of schemes to use.
    """

    words: str
    use: str
    rows: Frame


def counted(findings: StudyFindings) -> list[Counted]:
    """Count what to use by size, if situations are many and the study asks for that first."""
    found, decision = answered(findings), findings.concluded["decision"]
    if len(found) <= MOST or asks_of_time(findings):
        return []
    counts = []
    for size in dict.fromkeys(each.size_words for each in found):
        own = [(each, choice(each.of(decision))) for each in found if each.size_words == size]
        words = f"{size}, {plural(len(own), 'situation')}"
        rows = pd.DataFrame([chosen.row for _, chosen in own if chosen.is_scheme])
        counts.append(Counted(words, _in_so_many(own), rows))
    return counts


def _in_so_many(found: Sequence[tuple[Situation, Choice]]) -> str:
    """Say how often each is to be used, and in how many of them all others are behind it."""
    parts = []
    for use, number in Counter(chosen.use for _, chosen in found).most_common():
        own = [each for each, chosen in found if chosen.use == use]
        choices = [chosen for _, chosen in found if chosen.use == use]
        text = f"{use} in {number}"
        text += _which(own, [each for each, chosen in found if chosen.use != use])
        first = sum(each.tied.empty for each in choices)
        others = "the others are later, or lose runs"
        if first < number:
            others = f"in {first} of them {others}" if first else "others are not told from it"
        parts.append(f"{text} ({others})" if choices[0].is_scheme else text)
    return "; ".join(parts)


def _which(own: Sequence[Situation], others: Sequence[Situation]) -> str:
    """Name the one value of a setting that `own` situations have and no other has, if any."""
    for name, value in own[0].values.items() if others else ():
        values = {str(each.values[name]) for each in own}
        if len(values) == 1 and values.isdisjoint(str(each.values[name]) for each in others):
            return f", {'that' if len(own) == 1 else 'those'} of {value_words(name, value)}"
    return ""
