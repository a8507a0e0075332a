"""Finding of a rule of comparison in a study."""

from dataclasses import dataclass
from typing import Literal

import pandas as pd

from paceline.analysis.frames import Entry, Frame

Verdict = Literal["holds", "broken", "not applicable"]


@dataclass(frozen=True)
class RuleFinding:
    """Cases of a rule: `broken` of `of`, the `evidence` in words with numbers, and its `place`.

    `place` is the table of reports/<study> that the numbers are from.
    """

    broken: int
    of: int
    evidence: str
    place: str

    @property
    def verdict(self) -> Verdict:
        if not self.of:
            return "not applicable"
        return "broken" if self.broken else "holds"


NO_SPEEDUP = RuleFinding(0, 0, "no speed-up against one worker", "tables/scaling.csv")


def name_of(row: Frame, axes: list[str]) -> str:
    """Name a configuration in words: sync_allreduce, workers 4, batch_size 32."""
    parts = [f"{axis} {_text(row[axis])}" for axis in axes if axis != "scheme"]
    return ", ".join([str(row["scheme"]), *parts])


def _text(value: Entry) -> str:
    if pd.isna(value):
        return "null"
    return f"{value:g}" if isinstance(value, float) else str(value)
