"""Chooses what to use in a situation, and says how far each scheme came: from decision.csv."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import pandas as pd

from paceline.analysis.decision import is_faster
from paceline.analysis.frames import Frame
from paceline.report.words import scheme_words

ONE = "one worker"  # what to use where no scheme is faster
NONE = "no run reaches the target"
UNKNOWN = "unknown, because runs missed the target"
NOT_JUDGED = "not judged"
MEANINGS = {
    "best": "the shortest time to the target",
    "tied": "not significantly different from the best",
    "behind": "later than the best, or missed the target in some runs",
    "never": "no run reached the target",
    NOT_JUDGED: "behind or never, but its best rate is at the edge of the search range",
}


class Choice(NamedTuple):
    """Choice of what to use in a situation.

    `use`: in words, a scheme, or ONE, NONE or UNKNOWN. `row`: of that scheme, or else of the best
    one; None if no run reached the target. `tied`: the rows that are tied with it.
    """

    use: str
    row: Frame | None
    tied: Frame

    @property
    def is_scheme(self) -> bool:
        """Return True if a scheme is to be used."""
        return self.use not in (ONE, NONE, UNKNOWN)


def choice(rows: Frame) -> Choice:
    """Choose the best scheme that is shown to be faster than one worker, by a situation's rows.

    That may be one that is tied with the best, if the best missed the target in some runs, so that
    its speed-up is unknown. Where runs of one worker missed the target, no speed-up is known.
    """
    best, tied = rows[rows["tier"] == "best"], rows[rows["tier"] == "tied"]
    ranked = pd.concat([best, tied.sort_values("target_seconds_mean")])
    if ranked.empty:
        return Choice(NONE, None, ranked)
    for place, (_, row) in enumerate(ranked.iterrows()):
        if is_faster(row):
            return Choice(scheme_words(row), row, ranked.drop(ranked.index[place]))
    first = ranked.iloc[0]
    return Choice(UNKNOWN if pd.isna(first["speedup_mean"]) else ONE, first, ranked.iloc[1:])


def tier_of(row: Mapping[str, Any]) -> str:
    """Return the word of MEANINGS for a row of decision.csv, "" without a target.

    Nothing is said against a scheme whose best rate is at the edge of the search range.
    """
    tier = str(row["tier"])
    if tier in ("behind", "never") and is_at_edge(row):
        return NOT_JUDGED
    return tier if tier in MEANINGS else ""


def is_at_edge(row: Mapping[str, Any]) -> bool:
    """Return True if the best rate is at the edge of the search range, so a better may lie beyond.

    Tables of an older version of the code do not know it.
    """
    edge = row.get("at_edge")
    return isinstance(edge, str) and edge != ""
