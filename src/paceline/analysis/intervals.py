"""Computes means with their intervals and numbers of observations, also of pairs of equal seed."""

import math
from collections.abc import Iterable
from typing import NamedTuple

import pandas as pd

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
    """Mean of `n` numbers with the ends of its interval, which are NaN if n < 2."""

    mean: float
    low: float
    high: float
    n: int

    def named(self, name: str) -> dict[str, float | int]:
        """Return the interval as columns of a table: `name`_mean, _low, _high, _n."""
        return {f"{name}_{field}": value for field, value in self._asdict().items()}


NONE = Interval(math.nan, math.nan, math.nan, 0)


def interval(
    values: Iterable[float], space: Space = PLAIN, extra_variance: float = 0.0
) -> Interval:
    """Return the mean and its 95 % interval by Student's t; NaNs are left out of n.

    Both are computed in `space`; `extra_variance` is the variance there of an error that all values
    share.
    """
    numbers = [float(value) for value in values if not math.isnan(value)]
    if not numbers:
        return NONE
    found = intervals_of_means(pooled([numbers], space), extra_variance)
    return Interval(*found.at(0), len(numbers))


def not_negative(values: Iterable[float]) -> Space:
    """Return the space of numbers that are at least 0, such as times."""
    return POSITIVE if all(value > 0 for value in values if not math.isnan(value)) else COUNTS


def paired(points: Frame, baseline: Frame, metric: str) -> Frame:
    """Return the `metric` of both tables as columns `value` and `base`, a row per common seed."""
    sides = {"value": points, "base": baseline}
    columns = [side.set_index("seed")[metric].rename(name) for name, side in sides.items()]
    return pd.concat(columns, axis=1, join="inner").dropna().astype(float)


def ratio(points: Frame, baseline: Frame, metric: str, divisor: float = 1) -> Interval:
    """Return the geometric mean of ratios of a metric above 0, paired by seed."""
    pairs = paired(points, baseline, metric)
    return interval(pairs["value"] / pairs["base"] / divisor, POSITIVE)


def difference(points: Frame, baseline: Frame, metric: str) -> Interval:
    """Return the mean difference of a metric that is a share, paired by seed."""
    pairs = paired(points, baseline, metric)
    return interval(pairs["value"] - pairs["base"], DIFFERENCES)
