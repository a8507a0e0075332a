"""Computes means with their intervals and numbers of observations."""

import math
from collections.abc import Iterable
from typing import NamedTuple

from scipy.special import stdtrit

from paceline.inference.estimate import Estimate

CONFIDENCE = 0.95


class Interval(NamedTuple):
    """Mean of `n` numbers with the ends of its interval, which are NaN if n < 2."""

    mean: float
    low: float
    high: float
    n: int

    def named(self, name: str) -> dict[str, float | int]:
        """Return the interval as columns of a table: `name`_mean, _low, _high, _n."""
        return {f"{name}_{field}": value for field, value in self._asdict().items()}


NONE = Interval(math.nan, math.nan, math.nan, 0)


def interval(values: Iterable[float]) -> Interval:
    """Return the mean and its 95 % interval by Student's t; NaNs are left out of n."""
    numbers = [float(value) for value in values if not math.isnan(value)]
    n = len(numbers)
    if not n:
        return NONE
    mean = math.fsum(numbers) / n
    if n == 1:
        return Interval(mean, math.nan, math.nan, 1)
    variance = math.fsum((number - mean) ** 2 for number in numbers) / (n - 1)
    half = float(stdtrit(n - 1, (1 + CONFIDENCE) / 2)) * math.sqrt(variance / n)
    return Interval(mean, mean - half, mean + half, n)


def interval_of(found: Estimate, n: int) -> Interval:
    """Return an estimate of one number, from `n` observations, as columns are made of it."""
    return Interval(float(found.value), float(found.low), float(found.high), n)
