"""Compares groups of a family with one reference (Dunnett 1955, 1964), or in pairs (Holm).

A family has the groups whose comparisons are made together, so that errors are limited for all of
them at once. A contrast is the difference of the mean of a group from that of another, mapped back
from the space of the means. Differences from a reference have correlations rho_ij = load_i load_j
with load_i^2 = n_i / (n_i + n_0) (Dunnett 1955, JASA 50). Given the error u of the reference and
the pooled standard deviation s, these differences are independent. A double integral is therefore
their joint probability:

    P(lower_i < T_i < upper_i for all i)
        = E_s E_u prod_i [Phi((upper_i s - load_i u) / r_i) - Phi((lower_i s - load_i u) / r_i)]
    with r_i = sqrt(1 - load_i^2)
"""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import combinations
from typing import NamedTuple

import numpy as np
from scipy.optimize import root_scalar
from scipy.special import ndtr, roots_legendre, stdtr, stdtrit
from scipy.stats import chi, norm

from paceline.analysis.statistics.means import LEVEL, Array, Estimate, Numbers, Pooled

BETTER, WORSE, EQUIVALENT, NOT_TOLD = "better", "worse", "equivalent", "not told"
_TAIL = 1e-13  # of probability, left out at each end of both integrals
_NODES = 80  # of an integrand as smooth as the density itself
_SAME = 1e-9  # of a critical value
Loads = tuple[float, ...]


def against_reference(
    family: Pooled,
    reference: int,
    level: float = LEVEL,
    extra_variance: Numbers = 0.0,
    *,
    narrow: bool = False,
) -> Estimate:
    """Return the contrast of every other group with the group at the index `reference`.

    With probability `level`, all intervals cover their true contrasts simultaneously. With
    `narrow`, they are those of two one-sided tests of each: the probability of calling any group
    equivalent that is not is at most 1 - `level`.
    `extra_variance` [others] is the variance of an error of the contrasts that the family's
    variance does not contain; with it, the intervals are conservative.
    """
    find = one_sided_critical if narrow else two_sided_critical
    known = family.degrees and find(loads(family.sizes, reference), family.degrees, level)
    return contrasts(family, reference, known or np.nan, extra_variance)


for_equivalence = partial(against_reference, narrow=True)


def contrasts(
    family: Pooled,
    reference: int,
    critical: float,
    extra_variance: Numbers = 0.0,
) -> Estimate:
    """Return the contrasts with intervals that extend `critical` standard errors to each side."""
    others = np.delete(np.arange(len(family.sizes)), reference)
    difference = family.means[..., others] - family.means[..., reference, None]
    variance = family.variance_of_differences(others, reference)
    half = critical * np.sqrt(variance + extra_variance)
    ends = (difference, difference - half, difference + half)
    return Estimate(*(family.space.contrast(end) for end in ends))


class Judgement(NamedTuple):
    """Verdict on each contrast [...], and whether it is shown to lie within the margin [...]."""

    verdict: Array
    within: Array


def judge(difference: Estimate, equivalence: Estimate, margin: float) -> Judgement:
    """Judge differences in a number of which more is better, by two one-sided tests (TOST).

    The verdict is `better` or `worse` for a significant difference, even a small one; `equivalent`
    for one that is not significant and shown to lie within `margin`; else `not told`. `difference`
    has intervals of level 1 - alpha, and `equivalence` has those of two one-sided tests at alpha
    (Schuirmann 1987, J. Pharmacokinet. Biopharm. 15).
    """
    within = (np.asarray(equivalence.low) > -margin) & (np.asarray(equivalence.high) < margin)
    better, worse = difference.low > 0, difference.high < 0
    verdict = np.select([better, worse, within], [BETTER, WORSE, EQUIVALENT], NOT_TOLD)
    return Judgement(verdict, within)


def unadjusted(family: Pooled, extra_variance: Numbers = 0.0) -> Array:
    """Return the p-value [..., pairs] of a t test for each pair of groups, with pooled variance.

    Pairs are in the order of itertools.combinations. The p-values are not adjusted for their
    number. `extra_variance` [pairs] is added to the variance of each difference. The result is NaN
    for two groups of equal means without a variance.
    """
    first, second = np.array(list(combinations(range(family.means.shape[-1]), 2))).T
    variance = family.variance_of_differences(first, second) + extra_variance
    difference = np.abs(family.means[..., first] - family.means[..., second])
    with np.errstate(divide="ignore", invalid="ignore"):  # of runs that are all equal
        statistics = difference / np.sqrt(variance)
    return 2 * stdtr(family.degrees, -statistics)


def holm(p: Array) -> Array:
    """Return p-values [..., tests] adjusted for their number (Holm 1979, Scand. J. Statist. 6).

    If the hypotheses whose adjusted p-value is at most alpha are rejected, the probability of any
    false rejection is at most alpha, however the tests depend on each other.
    """
    order = np.argsort(p, axis=-1)
    scaled = np.take_along_axis(p, order, axis=-1) * np.arange(p.shape[-1], 0, -1)
    adjusted = np.maximum.accumulate(np.minimum(scaled, 1), axis=-1)
    return np.take_along_axis(adjusted, np.argsort(order, axis=-1), axis=-1)


def loads(sizes: Sequence[int] | Array, reference: int) -> Loads:
    """Return the load (see the module) of each group except the reference."""
    others = np.delete(np.asarray(sizes, float), reference)
    return tuple(np.sqrt(others / (others + sizes[reference])).tolist())


def joint_probability(lower: Array, upper: Array, load: Loads, degrees: int) -> float:
    """Return the probability that each t statistic T_i lies between lower_i and upper_i."""
    alike, how_many = np.unique(np.stack([lower, upper, load]), axis=1, return_counts=True)
    s, s_weights = _deviations(degrees)
    u, u_weights = _reference_errors(max(load))
    inside = np.ones((len(s), len(u)))
    for (low, high, each), times in zip(alike.T, how_many, strict=True):
        rest = np.sqrt(1 - each**2)
        top = 1.0 if np.isinf(high) else ndtr((high * s[:, None] - each * u) / rest)
        bottom = 0.0 if np.isinf(low) else ndtr((low * s[:, None] - each * u) / rest)
        inside *= (top - bottom) ** times
    return float(s_weights @ inside @ u_weights)


@lru_cache
def two_sided_critical(load: Loads, degrees: int, level: float) -> float:
    """Return c such that all statistics lie between -c and c with probability `level`."""
    ends = np.ones(len(load))
    single, surely = (1 + level) / 2, 1 - (1 - level) / (2 * len(load))
    return _solve(
        lambda c: joint_probability(-c * ends, c * ends, load, degrees) - level,
        *stdtrit(degrees, [single, surely]),
    )


@lru_cache
def one_sided_critical(load: Loads, degrees: int, level: float) -> float:
    """Return c such that with probability `level`, no statistic crosses its one bound, c or -c.

    It is not known which statistic has which bound. For equal loads, the worst case is that half of
    them have either bound: the probability is log-convex in the number of statistics with the upper
    bound (by Hoelder's inequality), and symmetric.
    """
    order = np.argsort(np.argsort(load))
    above = np.where(order % 2, 1.0, np.inf)
    below = np.where(order % 2, np.inf, 1.0)
    return _solve(
        lambda c: joint_probability(-c * below, c * above, load, degrees) - level,
        *stdtrit(degrees, [level, 1 - (1 - level) / len(load)]),
    )


def _solve(gap: Callable[[float], float], least: float, most: float) -> float:
    """Return the root of `gap` between the value for one statistic and Bonferroni's for all."""
    if most - least < _SAME:
        return float(least)
    found = root_scalar(gap, bracket=(least - _SAME, most + _SAME), xtol=_SAME)
    return float(found.root)


@lru_cache
def _deviations(degrees: int) -> tuple[Array, Array]:
    """Return nodes and weights to integrate over s (pooled over true standard deviation)."""
    start, end = chi.ppf([_TAIL, 1 - _TAIL], degrees).tolist()
    nodes, weights = _legendre(_NODES, start, end)
    return nodes / np.sqrt(degrees), weights * chi.pdf(nodes, degrees)


def _reference_errors(load: float) -> tuple[Array, Array]:
    """Return nodes and weights to integrate over u (a normal error); more for a larger load."""
    end = -float(norm.ppf(_TAIL))
    nodes, weights = _legendre(int(_NODES / np.sqrt(1 - load**2)), -end, end)
    return nodes, weights * norm.pdf(nodes)


@lru_cache
def _legendre(num_nodes: int, start: float, end: float) -> tuple[Array, Array]:
    nodes, weights = roots_legendre(num_nodes)
    half = (end - start) / 2
    return start + half * (nodes + 1), half * weights
