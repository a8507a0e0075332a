"""Compares every group of a family with one reference at once (Dunnett 1955, 1964)."""

import numpy as np
from scipy.special import stdtrit

from paceline.analysis.statistics.estimate import LEVEL, Array, Estimate, Numbers
from paceline.analysis.statistics.joint_t import loads, one_sided_critical, two_sided_critical
from paceline.analysis.statistics.pooled import Pooled


def against_reference(
    family: Pooled, reference: int, level: float = LEVEL, extra_variance: Numbers = 0.0
) -> Estimate:
    """Return the contrast of each other group with `reference`, with simultaneous intervals.

    All intervals cover the true contrasts with probability `level`, whatever the sizes of the
    groups. `extra_variance` [others] is that of an error of the contrasts which the variance of
    the family does not contain; it makes the intervals conservative.
    """
    critical = _critical(two_sided_critical, family, reference, level)
    return _contrasts(family, reference, critical, extra_variance)


def for_equivalence(
    family: Pooled, reference: int, level: float = LEVEL, extra_variance: Numbers = 0.0
) -> Estimate:
    """Return the contrasts with narrower intervals, for two one-sided tests of each.

    The probability that any group is called equivalent which is not is at most 1 - `level`. With
    one other group these are its intervals of level 1 - 2 (1 - `level`).
    """
    critical = _critical(one_sided_critical, family, reference, level)
    return _contrasts(family, reference, critical, extra_variance)


def alone(family: Pooled, reference: int, level: float = LEVEL) -> Estimate:
    """Return the contrasts with intervals of which each alone has the `level`."""
    critical = stdtrit(family.degrees, (1 + level) / 2) if family.degrees else np.nan
    return _contrasts(family, reference, critical, 0.0)


def _critical(find, family: Pooled, reference: int, level: float) -> float:
    if not family.degrees:
        return np.nan
    return find(loads(family.sizes, reference), family.degrees, level)


def _contrasts(
    family: Pooled, reference: int, critical: float, extra_variance: Numbers
) -> Estimate:
    difference, variance = _differences(family, reference)
    half = critical * np.sqrt(variance + extra_variance)
    ends = (difference, difference - half, difference + half)
    return Estimate(*(family.space.contrast(end) for end in ends))


def _differences(family: Pooled, reference: int) -> tuple[Array, Array]:
    """Return the differences from the reference [..., others] and their variances."""
    means, variances = family.means, family.variance_of_means()
    difference = means - means[..., reference, None]
    variance = variances + variances[..., reference, None]
    return np.delete(difference, reference, axis=-1), np.delete(variance, reference, axis=-1)
