"""Computes means, ratios and differences with 95 % intervals, also of runs paired by seed."""

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from paceline.analysis.frames import Frame
from paceline.analysis.statistics.means import (
    COUNTS,
    DIFFERENCES,
    PLAIN,
    POSITIVE,
    Space,
    intervals_of_means,
    pooled,
)


class Interval(NamedTuple):
    """Mean of `n` numbers, with the ends of its 95 % interval, which are NaN if n < 2."""

    mean: float
    low: float
    high: float
    n: int

    def named(self, name: str) -> dict[str, float | int]:
        """Return the interval as four columns of a table: `name`_mean, _low, _high and _n."""
        return {f"{name}_{field}": value for field, value in self._asdict().items()}


NONE = Interval(math.nan, math.nan, math.nan, 0)


def interval(
    values: Iterable[float], space: Space = PLAIN, extra_variance: float = 0.0
) -> Interval:
    """Return the mean of `values` and its 95 % interval by Student's t; NaNs are ignored.

    Values are mapped into `space` (for example to logarithms), averaged there, and mean and
    interval are mapped back. `extra_variance` is the variance, in this space, of an error that all
    values share.
    """
    numbers = [float(value) for value in values if not math.isnan(value)]
    if not numbers:
        return NONE
    found = intervals_of_means(pooled([numbers], space), extra_variance)
    return Interval(*found.at(0), len(numbers))


def not_negative(values: Iterable[float]) -> Space:
    """Return the space in which to average numbers that are at least 0, such as times.

    It is POSITIVE (a geometric mean) if all values are above 0, else COUNTS (an arithmetic mean).
    """
    return POSITIVE if all(value > 0 for value in values if not math.isnan(value)) else COUNTS


def paired(points: Frame, baseline: Frame, metric: str) -> np.ndarray:
    """Return `metric` of both tables for each seed that both have: [2, seeds], without NaNs."""
    bases = dict(zip(baseline["seed"], baseline[metric], strict=True))
    own = zip(points["seed"], points[metric], strict=True)
    pairs = [(value, bases[seed]) for seed, value in own if seed in bases]
    found = np.array(pairs, float).reshape(-1, 2)
    return found[~np.isnan(found).any(axis=1)].T


def ratio(points: Frame, baseline: Frame, metric: str, divisor: float = 1) -> Interval:
    """Return the geometric mean, over pairs of equal seed, of the ratio of a positive metric.

    The ratio is that of points to baseline, divided by `divisor`.
    """
    value, base = paired(points, baseline, metric)
    return interval(value / base / divisor, POSITIVE)


def difference(
    points: Frame, baseline: Frame, metric: str, extra_variance: float = 0.0
) -> Interval:
    """Return the mean, over pairs of equal seed, of points minus baseline in a metric (a share).

    `extra_variance`: as at `interval`.
    """
    value, base = paired(points, baseline, metric)
    return interval(value - base, DIFFERENCES, extra_variance)
