"""Pools the variance of a family of groups, which are alike but for their means."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from paceline.analysis.statistics.estimate import LEVEL, Array, Estimate, Numbers
from paceline.analysis.statistics.space import PLAIN, Space


@dataclass(frozen=True)
class Pooled:
    """Means [..., groups] in `space`, sizes [groups], and the variance [...] of one observation.

    `degrees` of freedom of the variance are 0, and the variance NaN, if no group has two.
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


def intervals_of_means(
    family: Pooled, level: float = LEVEL, extra_variance: Numbers = 0.0
) -> Estimate:
    """Return the mean of each group with its own interval by Student's t, mapped back.

    Each covers its mean with probability `level`; that all do is less likely. `extra_variance`
    [groups], in the space, is that of a known error with which all observations of a group are
    shifted; the degrees of freedom of the sum are those of Satterthwaite (1946, Biometrics 2).
    """
    if not family.degrees:
        nothing = np.full(family.means.shape, np.nan)
        return Estimate(family.space.back(family.means), nothing, nothing)
    own = family.variance_of_means()
    total = own + extra_variance
    degrees = np.divide(total, own, out=np.full(total.shape, np.inf), where=own > 0) ** 2
    half = stdtrit(family.degrees * degrees, (1 + level) / 2) * np.sqrt(total)
    ends = (family.means, family.means - half, family.means + half)
    return Estimate(*(family.space.back(end) for end in ends))
