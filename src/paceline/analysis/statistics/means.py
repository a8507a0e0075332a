"""Averages groups of observations in a space, with one variance pooled over all groups.

A space is a map of numbers to the real line, such as the logarithm. Numbers are averaged and
compared after this map, and means and intervals are mapped back, so that no interval contains a
share above 1 or a time below 0.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, stdtrit

Array: TypeAlias = np.ndarray
Numbers: TypeAlias = Array | float
Map = Callable[[ArrayLike], Array]
LEVEL = 0.95


class Estimate(NamedTuple):
    """Value with the ends of its interval, or arrays of both; an unknown end is NaN."""

    value: Numbers
    low: Numbers
    high: Numbers

    def covers(self, truth: Numbers) -> Array:
        """Return True where the interval contains `truth`."""
        return np.asarray((self.low <= truth) & (truth <= self.high))

    def at(self, index: int | tuple[()] = ()) -> tuple[float, float, float]:
        """Return the estimate at `index` of an array of estimates; by default, the only one."""
        value, low, high = (float(np.asarray(numbers)[index]) for numbers in self)
        return value, low, high


@dataclass(frozen=True)
class Space:
    """Monotone map: `into` maps observations to the real line, and `back` maps a mean back.

    `contrast` maps the difference of two means back: to a difference, a ratio, or a ratio of odds.
    """

    into: Map
    back: Map
    contrast: Map


def _real(numbers: ArrayLike) -> Array:
    return np.asarray(numbers, float)


PLAIN = Space(_real, _real, _real)
# Shares whose differences are given in points; intervals are cut off at 0 and 1.
POINTS = Space(_real, lambda mean: np.clip(mean, 0, 1), lambda mean: np.clip(mean, -1, 1))
DIFFERENCES = Space(_real, lambda mean: np.clip(mean, -1, 1), _real)  # of two shares
COUNTS = Space(_real, lambda mean: np.maximum(mean, 0), _real)  # some of which may be 0
# Times, rates and ratios, all above 0: means are geometric, contrasts are ratios.
POSITIVE = Space(lambda numbers: np.log(_real(numbers)), np.exp, np.exp)


def logit_of(trials: int) -> Space:
    """Return the space of logits of shares of `trials`, such as the number of test images.

    Contrasts are ratios of odds. Half a success and half a failure are added, so that the shares 0
    and 1 have a finite logit (Haldane 1956, Anscombe 1956).
    """

    def into(shares: ArrayLike) -> Array:
        successes = _real(shares) * trials
        return np.log((successes + 0.5) / (trials - successes + 0.5))

    def back(mean: ArrayLike) -> Array:
        return np.clip((expit(mean) * (trials + 1) - 0.5) / trials, 0, 1)

    return Space(into, back, np.exp)


def variance_of_logit(share: Numbers, images: int) -> Numbers:
    """Return the variance of an accuracy's logit that is due to the random draw of its images.

    All seeds are scored on the same images, so the variance between seeds does not contain this
    variance. The result is the variance for a single run. For a mean over seeds this is an upper
    bound, which is close because seeds agree on most images.
    """
    inner = (np.asarray(share) * images + 0.5) / (images + 1)  # never 0 or 1
    return 1 / (inner * (1 - inner) * images)


@dataclass(frozen=True)
class Pooled:
    """Groups of observations with one common variance.

    `means` [..., groups] are in `space`, and `sizes` [groups] are numbers of observations.
    `variance` [...] is that of a single observation, with `degrees` of freedom; it is NaN, and they
    are 0, if no group has two observations. `covariance` [groups, groups] of the means is relative
    to it; None if the means are independent.
    """

    means: Array
    sizes: Array
    variance: Array
    degrees: int
    space: Space
    covariance: Array | None = None

    def variance_of_means(self) -> Array:
        """Return the variance of the mean of each group [..., groups]."""
        return self.variance[..., None] / self.sizes

    def variance_of_differences(self, one: ArrayLike, other: ArrayLike) -> Array:
        """Return the variance of the difference of the means of two groups [..., pairs]."""
        first, second = np.asarray(one), np.asarray(other)
        unit = np.diag(1 / self.sizes) if self.covariance is None else self.covariance
        own = unit.diagonal()
        return self.variance[..., None] * (own[first] + own[second] - 2 * unit[first, second])


def pooled(groups: Sequence[ArrayLike], space: Space = PLAIN) -> Pooled:
    """Map groups of shape [..., observations] into `space`, and pool the variance within them.

    Each index of the leading dimensions is an independent family with the same group sizes. A group
    of one observation adds nothing to the variance. If one group varies more than the others, its
    own interval is too narrow and the intervals of the others are too wide.
    """
    mapped = [space.into(group) for group in groups]
    sizes = np.array([group.shape[-1] for group in mapped])
    means = np.stack([group.mean(axis=-1) for group in mapped], axis=-1)
    squares = sum(group.var(axis=-1) * group.shape[-1] for group in mapped)
    degrees = int(sizes.sum() - len(sizes))
    variance = np.asarray(squares) / degrees if degrees else np.full(means.shape[:-1], np.nan)
    return Pooled(means, sizes, variance, degrees, space)


def paired(table: ArrayLike, space: Space = PLAIN) -> Pooled:
    """Map observations into `space`, and pool the variance that their seeds do not explain.

    `table` [..., groups, seeds] is NaN where a group has no observation with a seed, at the same
    places in all leading dimensions. Runs with the same seed share the order of their data and
    their initial weights, so that an observation is the sum of a mean of the group, an effect of
    the seed and an error. Means are those of least squares; their differences are free of the
    effects of seeds. If the groups have too few seeds in common, they are taken as independent.
    """
    values = space.into(table)
    num_groups, num_seeds = values.shape[-2:]
    missing: Array = np.isnan(values).reshape(-1, num_groups, num_seeds)
    known = np.asarray(~missing.any(axis=0))
    shared = known & (known.sum(axis=0) > 1)  # a seed of one group alone tells nothing
    group, column = np.nonzero(shared)
    seed = np.unique(column, return_inverse=True)[1]
    effects = np.eye(seed.max(initial=0) + 1)[:, :-1]
    effects[-1] = -1  # all effects add up to 0
    design = np.column_stack([np.eye(num_groups)[group], effects[seed]])
    degrees = len(group) - design.shape[1]
    if degrees < 1 or np.linalg.matrix_rank(design) < design.shape[1]:
        raw = np.asarray(table, float)
        return pooled([raw[..., each, :][..., known[each]] for each in range(num_groups)], space)
    observed = values[..., group, column]
    found = observed @ np.linalg.pinv(design).T
    variance = ((observed - found @ design.T) ** 2).sum(axis=-1) / degrees
    covariance = np.linalg.inv(design.T @ design)[:num_groups, :num_groups]
    means = found[..., :num_groups]
    return Pooled(means, shared.sum(axis=1), np.asarray(variance), degrees, space, covariance)


def intervals_of_means(family: Pooled, extra_variance: Numbers = 0.0) -> Estimate:
    """Return the mean of each group with an interval by Student's t, mapped back.

    Each interval by itself covers its mean with probability LEVEL. `extra_variance` [groups], in
    the space, is the variance of an error that shifts all observations of a group. The degrees of
    freedom of the summed variance follow Satterthwaite (1946, Biometrics 2).
    """
    if not family.degrees:
        nothing = np.full(family.means.shape, np.nan)
        return Estimate(family.space.back(family.means), nothing, nothing)
    own = family.variance_of_means()
    total = own + extra_variance
    degrees = np.divide(total, own, out=np.full(total.shape, np.inf), where=own > 0) ** 2
    half = stdtrit(family.degrees * degrees, (1 + LEVEL) / 2) * np.sqrt(total)
    ends = (family.means, family.means - half, family.means + half)
    return Estimate(*(family.space.back(end) for end in ends))
