"""Compares all pairs of a family without a common reference, by Holm's step-down p-values."""

from itertools import combinations

import numpy as np
from scipy.special import stdtr

from paceline.analysis.statistics.estimate import Array
from paceline.analysis.statistics.pooled import Pooled


def pairs(num_groups: int) -> list[tuple[int, int]]:
    """Return all pairs of groups, in the order of the p-values of all_pairs."""
    return list(combinations(range(num_groups), 2))


def all_pairs(family: Pooled) -> Array:
    """Return Holm's p-value [..., pairs] of each pair."""
    return holm(unadjusted(family))


def unadjusted(family: Pooled) -> Array:
    """Return the p-value [..., pairs] of each pair alone: of a t test with the pooled variance."""
    first, second = np.array(pairs(family.means.shape[-1])).T
    variances = family.variance_of_means()
    difference = family.means[..., first] - family.means[..., second]
    statistics = np.abs(difference) / np.sqrt(variances[..., first] + variances[..., second])
    return 2 * stdtr(family.degrees, -statistics)


def holm(p: Array) -> Array:
    """Adjust p-values [..., tests] (Holm 1979, Scand. J. Statist. 6).

    Rejecting those up to alpha makes any false rejection at most alpha probable, however the tests
    depend on each other.
    """
    order = np.argsort(p, axis=-1)
    ascending = np.take_along_axis(p, order, axis=-1)
    num_left = np.arange(p.shape[-1], 0, -1)
    adjusted = np.maximum.accumulate(np.minimum(ascending * num_left, 1), axis=-1)
    result = np.empty_like(adjusted)
    np.put_along_axis(result, order, adjusted, axis=-1)
    return result
