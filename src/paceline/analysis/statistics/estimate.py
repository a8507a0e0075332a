"""Declares what every part of this room returns: a number with the ends of its interval."""

from typing import NamedTuple, TypeAlias

import numpy as np
from scipy.stats import binomtest

Array: TypeAlias = np.ndarray
Numbers: TypeAlias = Array | float
LEVEL = 0.95


class Estimate(NamedTuple):
    """One value, or an array of them, with the ends of the interval of each.

    The ends are NaN where no interval exists, which is where nothing tells the spread.
    """

    value: Numbers
    low: Numbers
    high: Numbers

    def covers(self, truth: Numbers) -> Array:
        """Return True where the interval contains `truth`."""
        return np.asarray((self.low <= truth) & (truth <= self.high))

    def at(self, index: int) -> "Estimate":
        """Return one of an array of estimates."""
        return Estimate(*(float(np.asarray(numbers)[index]) for numbers in self))


def success_rate(successes: int, runs: int, level: float = LEVEL) -> Estimate:
    """Return the share of runs that succeed, with the interval of Clopper and Pearson.

    It covers the true rate with probability `level` at least (1934, Biometrika 26): no success in
    3 runs leaves rates up to 71 % possible.
    """
    low, high = binomtest(successes, runs).proportion_ci(level, method="exact")
    return Estimate(successes / runs, low, high)
