"""Computes ratios of times: speed-ups at matched accuracy."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtr, stdtrit

from paceline.analysis.statistics.estimate import LEVEL, Estimate
from paceline.analysis.statistics.pooled import Pooled, intervals_of_means, pooled
from paceline.analysis.statistics.restricted_mean import RestrictedMean
from paceline.analysis.statistics.space import POSITIVE


def paired_ratio(one: ArrayLike, other: ArrayLike, level: float = LEVEL) -> Estimate:
    """Return the geometric mean of `one` / `other`, both [..., pairs] above 0.

    Pairs gain only where what they share, such as the hour of a measurement, varies more than what
    they do not; half of the degrees of freedom are the price.
    """
    ratios = np.asarray(one, float) / np.asarray(other, float)
    found = intervals_of_means(pooled([ratios], POSITIVE), level)
    return Estimate(*(np.asarray(end)[..., 0] for end in found))


def ratio_of_means(one: RestrictedMean, other: RestrictedMean, level: float = LEVEL) -> Estimate:
    """Return the ratio of two restricted means of one horizon.

    Its logarithm has the variance of both relative errors, and degrees of freedom after Welch and
    Satterthwaite, since groups with failures vary more. Where some runs did not reach the target,
    the time of `one` over that of `other` is one of times cut off at the horizon. The ends are NaN
    if a variance is, for example because no run of a group reached the target.
    """
    ratio = one.mean / other.mean
    error, degrees = _error_of_ratio(one, other)
    factor = math.exp(stdtrit(degrees, (1 + level) / 2) * error)
    return Estimate(ratio, ratio / factor, ratio * factor)


def p_value(one: RestrictedMean, other: RestrictedMean) -> float:
    """Return the two-sided p-value of a ratio of 1; NaN where ratio_of_means has no interval."""
    error, degrees = _error_of_ratio(one, other)
    return float(2 * stdtr(degrees, -abs(math.log(one.mean / other.mean)) / error))


def _error_of_ratio(one: RestrictedMean, other: RestrictedMean) -> tuple[float, float]:
    """Return the standard error of the logarithm of a ratio, and its degrees of freedom."""
    errors = np.array([side.variance / side.mean**2 for side in (one, other)])
    freedom = np.array([max(side.n - 1, 1) for side in (one, other)])
    total = errors.sum()
    if not total > 0:
        return math.nan, 1.0
    return math.sqrt(total), float(total**2 / (errors**2 / freedom).sum())


def family_of(groups: Sequence[RestrictedMean]) -> Pooled:
    """Return groups as one family, of logarithms of means, with the relative variance of a time.

    That suits groups whose runs all reached the target: times are skewed alike. Groups of one run
    borrow the variance of the others.
    """
    degrees = [group.n - 1 for group in groups]
    relative = [
        (group.n - 1) * group.n * group.variance / group.mean**2 for group in groups if group.n > 1
    ]
    total = sum(degrees)
    return Pooled(
        means=np.log([group.mean for group in groups]),
        sizes=np.array([group.n for group in groups]),
        variance=np.asarray(sum(relative) / total if total else math.nan),
        degrees=total,
        space=POSITIVE,
    )


def fastest(groups: Sequence[RestrictedMean]) -> int:
    """Return the index of the smallest restricted mean: the baseline of an honest speed-up.

    The smallest of several means is too small rather than too large, and so is the speed-up.
    """
    return int(np.argmin([group.mean for group in groups]))
