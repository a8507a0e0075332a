"""Computes ratios of times: speed-ups at matched accuracy."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from paceline.inference.estimate import LEVEL, Estimate
from paceline.inference.pooled import intervals_of_means, pooled
from paceline.inference.restricted_mean import RestrictedMean
from paceline.inference.space import POSITIVE


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
    sides = (one, other)
    errors = np.array([side.variance / side.mean**2 for side in sides])
    freedom = np.array([max(side.n - 1, 1) for side in sides])
    total = errors.sum()
    ratio = one.mean / other.mean
    if not total > 0:
        return Estimate(ratio, math.nan, math.nan)
    degrees = total**2 / (errors**2 / freedom).sum()
    factor = math.exp(stdtrit(degrees, (1 + level) / 2) * math.sqrt(total))
    return Estimate(ratio, ratio / factor, ratio * factor)


def fastest(groups: Sequence[RestrictedMean]) -> int:
    """Return the index of the smallest restricted mean: the baseline of an honest speed-up.

    The smallest of several means is too small rather than too large, and so is the speed-up.
    """
    return int(np.argmin([group.mean for group in groups]))


def speed_up(
    group: RestrictedMean, one_worker: Sequence[RestrictedMean], level: float = LEVEL
) -> Estimate:
    """Return how many times sooner `group` is at the target than the best one-worker runs.

    Both are at the same accuracy by construction. `one_worker` has a restricted mean for each
    configuration of one worker, all with the horizon of `group`.
    """
    return ratio_of_means(one_worker[fastest(one_worker)], group, level)
