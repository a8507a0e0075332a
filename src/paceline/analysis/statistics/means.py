"""Averages groups of observations in a space of their own, with one pooled variance.

A space maps numbers to the real line, where they are averaged and compared, and intervals back: an
interval that is made there ends where its numbers do, at no share above 1 and no time below 0.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, stdtrit
from scipy.stats import binomtest

Array: TypeAlias = np.ndarray
Numbers: TypeAlias = Array | float
Map = Callable[[ArrayLike], Array]
LEVEL = 0.95


class Estimate(NamedTuple):
    """One value, or an array of them, with the ends of the interval of each.

    The ends are NaN where the spread is unknown, so that no interval exists.
    """

    value: Numbers
    low: Numbers
    high: Numbers

    def covers(self, truth: Numbers) -> Array:
        """Return True where the interval contains `truth`."""
        return np.asarray((self.low <= truth) & (truth <= self.high))

    def at(self, index: int | tuple[()] = ()) -> tuple[float, float, float]:
        """Return one of an array of estimates, or the only one."""
        value, low, high = (float(np.asarray(numbers)[index]) for numbers in self)
        return value, low, high


def success_rate(successes: int, runs: int) -> Estimate:
    """Return the share of runs that succeed, with the interval of Clopper and Pearson.

    It covers the true rate with probability LEVEL at least (1934, Biometrika 26): no success in
    3 runs leaves rates up to 71 % possible.
    """
    low, high = binomtest(successes, runs).proportion_ci(LEVEL, method="exact")
    return Estimate(successes / runs, low, high)


@dataclass(frozen=True)
class Space:
    """A monotone map and its inverses.

    `into` maps observations, `back` a mean of mapped ones. `contrast` maps back the difference of
    two means: it is a difference itself, or a ratio, or a ratio of odds.
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
    """Return the space of shares of `trials`, such as test images; contrasts are ratios of odds.

    Half a success and half a failure are added to each share, so that 0 and 1 have a place
    (Haldane 1956, Anscombe 1956).
    """

    def into(shares: ArrayLike) -> Array:
        successes = _real(shares) * trials
        return np.log((successes + 0.5) / (trials - successes + 0.5))

    def back(mean: ArrayLike) -> Array:
        return np.clip((expit(mean) * (trials + 1) - 0.5) / trials, 0, 1)

    return Space(into, back, np.exp)


def variance_of_logit(share: Numbers, images: int) -> Numbers:
    """Return the variance of the logit of an accuracy by the draw of the images it is scored on.

    All seeds are scored on the same images, so that the variance between seeds does not contain
    it. It is that of one binomial draw for all seeds, since they agree on most images; where they
    do not, the variance is smaller.
    """
    inner = (np.asarray(share) * images + 0.5) / (images + 1)  # never 0 or 1
    return 1 / (inner * (1 - inner) * images)


@dataclass(frozen=True)
class Pooled:
    """Means [..., groups] in `space`, sizes [groups], and the variance [...] of one observation.

    The groups are alike but for their means. `degrees` of freedom of the variance are 0, and the
    variance NaN, if no group has two observations.
    """

    means: Array
    sizes: Array
    variance: Array
    degrees: int
    space: Space

    def variance_of_means(self) -> Array:
        """Return the variance of each mean [..., groups]."""
        return self.variance[..., None] / self.sizes


def pooled(groups: Sequence[ArrayLike], space: Space = PLAIN) -> Pooled:
    """Pool the variance within groups, each of shape [..., observations].

    Leading dimensions are families of their own, of equal sizes. Groups of one observation have a
    mean and add nothing to the variance. The groups are taken to have one variance in `space`;
    where one has a larger, its intervals are too narrow, and the others' too wide.
    """
    mapped = [space.into(group) for group in groups]
    sizes = np.array([group.shape[-1] for group in mapped])
    means = np.stack([group.mean(axis=-1) for group in mapped], axis=-1)
    squares = sum(group.var(axis=-1) * group.shape[-1] for group in mapped)
    degrees = int(sizes.sum() - len(sizes))
    variance = np.asarray(squares) / degrees if degrees else np.full(means.shape[:-1], np.nan)
    return Pooled(means, sizes, variance, degrees, space)


def intervals_of_means(family: Pooled, extra_variance: Numbers = 0.0) -> Estimate:
    """Return the mean of each group with its own interval by Student's t, mapped back.

    Each covers its mean with probability LEVEL; that all do is less likely. `extra_variance`
    [groups], in the space, is that of a known error with which all observations of a group are
    shifted; the degrees of freedom of the sum are those of Satterthwaite (1946, Biometrics 2).
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
