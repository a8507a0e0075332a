"""Chooses what to use in a situation, from its rows of decision.csv."""

from typing import NamedTuple

import pandas as pd

from paceline.analysis.decision import is_faster
from paceline.analysis.tables import Frame
from paceline.report.words import scheme_words

ONE = "one worker"  # what to use where no scheme is faster
NOBODY = "no run reaches the target"
LOST = "not known, since runs were lost"


class Choice(NamedTuple):
    """Choice of what to use in a situation.

    `use`: in words, a scheme, or ONE, NOBODY or LOST. `row`: of that scheme, or else of the best
    one; None if no run reached the target. `tied`: the rows that are not told from it.
    """

    use: str
    row: Frame | None
    tied: Frame

    @property
    def is_scheme(self) -> bool:
        """Return True if a scheme is to be used."""
        return self.use not in (ONE, NOBODY, LOST)


def choice(rows: Frame) -> Choice:
    """Choose the best scheme that is shown to be faster than one worker, by a situation's rows.

    That may be one that is not told from the first, if the first lost runs, so that nobody knows
    how much sooner it is. Where runs of one worker were lost, nothing is shown.
    """
    best, tied = rows[rows["tier"] == "best"], rows[rows["tier"] == "tied"]
    ranked = pd.concat([best, tied.sort_values("target_seconds_mean")])
    if ranked.empty:
        return Choice(NOBODY, None, ranked)
    for place, (_, row) in enumerate(ranked.iterrows()):
        if is_faster(row):
            return Choice(scheme_words(row), row, ranked.drop(ranked.index[place]))
    first = ranked.iloc[0]
    return Choice(LOST if pd.isna(first["speedup_mean"]) else ONE, first, ranked.iloc[1:])
