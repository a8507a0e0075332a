"""Computes probabilities of several t statistics that share one reference and one variance.

Differences of group means from one reference correlate by products, rho_ij = load_i load_j with
load_i^2 = n_i / (n_i + n_0) (Dunnett 1955, JASA 50). Given the error u of the reference and the
pooled standard deviation s they are independent, so that any number of them takes a double
integral:

    P(lower_i < T_i < upper_i for all i)
        = E_s E_u prod_i [Phi((upper_i s - load_i u) / r_i) - Phi((lower_i s - load_i u) / r_i)]
    with r_i = sqrt(1 - load_i^2)
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from scipy.optimize import root_scalar
from scipy.special import ndtr, roots_legendre, stdtrit
from scipy.stats import chi, norm

from paceline.analysis.statistics.estimate import Array

_TAIL = 1e-13  # of probability, left out at each end of both integrals
_NODES = 80  # of an integrand as smooth as the density itself
_SAME = 1e-9  # of a critical value

Loads = tuple[float, ...]


def loads(sizes: Sequence[int] | Array, reference: int) -> Loads:
    """Return the load of each group but the reference."""
    others = np.delete(np.asarray(sizes, float), reference)
    return tuple(np.sqrt(others / (others + sizes[reference])).tolist())


def joint_probability(lower: Array, upper: Array, load: Loads, degrees: int) -> float:
    """Return the probability that each statistic lies between its two ends."""
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
    """Return c such that all statistics lie within -c and c with probability `level`."""
    ends = np.ones(len(load))
    alone, surely = (1 + level) / 2, 1 - (1 - level) / (2 * len(load))
    return _solve(
        lambda c: joint_probability(-c * ends, c * ends, load, degrees) - level,
        *stdtrit(degrees, [alone, surely]),
    )


@lru_cache
def one_sided_critical(load: Loads, degrees: int, level: float) -> float:
    """Return c such that no statistic crosses an end of its own, c or -c, with this probability.

    Which end each has is not known. Half have either, since that is the worst where all loads are
    equal: the probability is log-convex in how many have one end (Hoelder), and symmetric.
    """
    order = np.argsort(np.argsort(load))
    above = np.where(order % 2, 1.0, np.inf)
    below = np.where(order % 2, np.inf, 1.0)
    return _solve(
        lambda c: joint_probability(-c * below, c * above, load, degrees) - level,
        *stdtrit(degrees, [level, 1 - (1 - level) / len(load)]),
    )


def _solve(gap: Callable[[float], float], least: float, most: float) -> float:
    """Return the root between the value for one statistic and Bonferroni's for all."""
    if most - least < _SAME:
        return float(least)
    found = root_scalar(gap, bracket=(least - _SAME, most + _SAME), xtol=_SAME)
    return float(found.root)


@lru_cache
def _deviations(degrees: int) -> tuple[Array, Array]:
    """Return nodes and weights of the pooled standard deviation over the true one."""
    start, end = chi.ppf([_TAIL, 1 - _TAIL], degrees).tolist()
    nodes, weights = _legendre(_NODES, start, end)
    return nodes / np.sqrt(degrees), weights * chi.pdf(nodes, degrees)


def _reference_errors(load: float) -> tuple[Array, Array]:
    """Return nodes and weights of a normal error; the more of them, the steeper the integrand."""
    end = -float(norm.ppf(_TAIL))
    nodes, weights = _legendre(int(_NODES / np.sqrt(1 - load**2)), -end, end)
    return nodes, weights * norm.pdf(nodes)


@lru_cache
def _legendre(num_nodes: int, start: float, end: float) -> tuple[Array, Array]:
    nodes, weights = roots_legendre(num_nodes)
    half = (end - start) / 2
    return start + half * (nodes + 1), half * weights
