"""Computes means, differences and ratios with 95 % intervals, and tests of them, by Student's t.

Runs are paired by seed: runs with the same seed share the order of their data and their initial
weights. Each side of a comparison thus keeps a variance of its own. Each interval covers by itself.
"""

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtr, stdtrit

from paceline.analysis.frames import Frame

Array: TypeAlias = np.ndarray
LEVEL = 0.95
FEWEST = 3  # seeds whose interval decides


class Space(NamedTuple):
    """Monotone map: `into` maps observations to the real line, and `back` maps a mean back.

    Numbers are averaged after this map, and means and intervals are mapped back, so that no
    interval contains a share above 1 or a time below 0.
    """

    into: Callable[[ArrayLike], Array]
    back: Callable[[ArrayLike], Array]


def _real(numbers: ArrayLike) -> Array:
    return np.array(numbers, float)


PLAIN = Space(_real, _real)
POINTS = Space(_real, lambda mean: np.clip(mean, 0, 1))  # shares
DIFFERENCES = Space(_real, lambda mean: np.clip(mean, -1, 1))  # of two shares
COUNTS = Space(_real, lambda mean: np.maximum(mean, 0))  # some of which may be 0
# Times, rates and ratios, all above 0: means are geometric.
POSITIVE = Space(lambda numbers: np.log(_real(numbers)), np.exp)


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


def interval(values: Iterable[float], space: Space = PLAIN) -> Interval:
    """Return the mean of `values` and its 95 % interval by Student's t; NaNs are ignored."""
    numbers = space.into([float(value) for value in values if not math.isnan(value)])
    if not len(numbers):
        return NONE
    mean, error = numbers.mean(), _error(numbers)
    half = stdtrit(max(len(numbers) - 1, 1), (1 + LEVEL) / 2) * error
    low, high = (float(space.back(end)) for end in (mean - half, mean + half))
    return Interval(float(space.back(mean)), low, high, len(numbers))


def not_negative(values: Iterable[float]) -> Space:
    """Return the space in which to average numbers that are at least 0, such as times.

    It is POSITIVE (a geometric mean) if all values are above 0, else COUNTS (an arithmetic mean).
    """
    return POSITIVE if all(value > 0 for value in values if not math.isnan(value)) else COUNTS


def paired(points: Frame, baseline: Frame, metric: str) -> Array:
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


def difference(points: Frame, baseline: Frame, metric: str) -> Interval:
    """Return the mean, over pairs of equal seed, of points minus baseline in a metric (a share)."""
    value, base = paired(points, baseline, metric)
    return interval(value - base, DIFFERENCES)


def p_above(values: Array, bound: float) -> float:
    """Return the p-value of a one-sided t test that the mean of `values` is above `bound`.

    It is NaN for fewer than two values.
    """
    if len(values) < 2:
        return math.nan
    distance, error = values.mean() - bound, _error(values)
    if error == 0:
        return 0.0 if distance > 0 else 1.0
    return float(stdtr(len(values) - 1, -distance / error))


def p_differs(values: Array) -> float:
    """Return the p-value of a two-sided t test that the mean of `values` is not 0."""
    if len(values) < 2:
        return math.nan
    return min(1.0, 2 * p_above(values if values.mean() > 0 else -values, 0.0))


def holm(p: ArrayLike) -> Array:
    """Return p-values [tests] adjusted for their number (Holm 1979, Scand. J. Statist. 6).

    If the hypotheses whose adjusted p-value is at most alpha are rejected, the probability of any
    false rejection is at most alpha, however the tests depend on each other. NaN is no test.
    """
    found = _real(p)
    known = np.flatnonzero(~np.isnan(found))
    order = known[np.argsort(found[known])]
    scaled = np.minimum(found[order] * np.arange(len(order), 0, -1), 1)
    found[order] = np.maximum.accumulate(scaled)
    return found


def _error(numbers: Array) -> float:
    """Return the standard error of a mean; NaN for a single number."""
    return float(numbers.std(ddof=1) / math.sqrt(len(numbers))) if len(numbers) > 1 else math.nan
