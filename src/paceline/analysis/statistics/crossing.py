"""Finds when a run first reached a target, as far as its evaluations tell."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

IN_A_ROW = 3  # evaluations at or above the target, since one alone may be luck


class Crossing(NamedTuple):
    """The time of a crossing lies above `low` and is at most `high`.

    A run that had not reached the target when it ended, at `low`, has `high` infinity. A run of
    which it is known that it never would have, because it diverged, is NEVER.
    """

    low: float
    high: float

    @property
    def reached(self) -> bool:
        """True if there was a crossing."""
        return math.isfinite(self.high)

    @property
    def width(self) -> float:
        """Return how much of the time of the crossing is not known."""
        return self.high - self.low

    @property
    def middle(self) -> float:
        """Return the middle of what is possible, or the end of a run that did not cross."""
        return (self.low + self.high) / 2 if self.reached else self.low


NEVER = Crossing(math.inf, math.inf)


def crossing(
    times: ArrayLike, values: ArrayLike, target: float, in_a_row: int = IN_A_ROW
) -> Crossing:
    """Return the crossing of one run; `times` [evaluations] rise from after 0.

    It is before the evaluation that `first_above` finds.
    """
    times = np.asarray(times, float)
    first = first_above(values, target, in_a_row)
    if first is None:
        return Crossing(float(times[-1]) if len(times) else 0.0, math.inf)
    return Crossing(float(times[first - 1]) if first else 0.0, float(times[first]))


def first_above(values: ArrayLike, target: float, in_a_row: int = IN_A_ROW) -> int | None:
    """Return the place of the first of `in_a_row` evaluations that are all at least `target`.

    Of all the evaluations to the end of the run, if fewer are left; None without any. `values` are
    better if larger.
    """
    above = np.asarray(values, float) >= target
    for first in np.flatnonzero(above):
        if above[first : first + in_a_row].all():
            return int(first)
    return None
