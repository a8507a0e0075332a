"""Computes how much the luck of tuning moves a difference between what it chose."""

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import Normal, chi2, order_statistic

from paceline.analysis.statistics.means import Array

SURE = 0.9  # of upper ends, one-sided: plain estimates of few searches let too much seem real


def variance_of_difference(
    scores: Sequence[ArrayLike], values: Sequence[ArrayLike], noise: float
) -> float:
    """Return the variance that the luck of searches adds to a difference between two members.

    Each member of a family has the `scores` [searches] of the best trial of each of its searches,
    by which the best of these is chosen, and their `values` [searches] on other images. Every trial
    has one run, whose luck is in both: `noise` is the variance of a value between seeds. The result
    is what repeating all searches would change in a difference of mean values at the chosen trials.
    NaN if no member has two searches.

    Two numbers bound it from above, and the smaller is returned: twice `variance_of_chosen`, as if
    each member had luck of its own; and twice the variance of what is left of values when the mean
    of each search over all members is taken out, since members try the same points. Few searches of
    few members tell little of either, so both are upper ends, of probability SURE.
    """
    apart = 2 * variance_of_chosen(scores, values, noise, SURE)
    together = 2 * _interaction(values, noise, SURE)
    return apart if math.isnan(together) else min(apart, together)


def variance_of_chosen(
    scores: Sequence[ArrayLike],
    values: Sequence[ArrayLike],
    noise: float,
    sure: float | None = None,
) -> float:
    """Return the variance of the mean value at the best of all searches, were they repeated.

    Arguments as in `variance_of_difference`. Members are taken to be alike but for their means, and
    normal: of the best of m, whatever goes with its score varies less, and the rest as of any. NaN
    if no member has two searches. An estimate, or the upper end of what is between searches, of
    probability `sure`.
    """
    pairs = [
        np.stack([np.asarray(own, float), np.asarray(other, float)])
        for own, other in zip(scores, values, strict=True)
    ]
    pairs = [pair for pair in pairs if pair.shape[1] > 1]
    if not pairs:
        return float("nan")
    degrees = sum(pair.shape[1] - 1 for pair in pairs)
    products = np.sum([_products(pair) for pair in pairs], axis=0) / _divisor(degrees, sure)
    common, own = max(products[0, 1] - noise, 0.0), max(products[1, 1] - noise, 0.0)
    searches = min(pair.shape[1] for pair in pairs)
    by_score = common**2 / products[0, 0] if products[0, 0] > 0 else 0.0
    return max(float(own - (1 - variance_of_largest(searches)) * by_score), 0.0)


@cache
def variance_of_largest(number: int) -> float:
    """Return the variance of the largest of so many standard normal numbers."""
    return float(order_statistic(Normal(), r=number, n=number).variance())


def _products(pair: Array) -> Array:
    centred = pair - pair.mean(axis=1, keepdims=True)
    return centred @ centred.T


def _divisor(degrees: int, sure: float | None) -> float:
    """Return that of a sum of squares for an estimate of the variance, or for its upper end."""
    return degrees if sure is None else float(chi2.ppf(1 - sure, degrees))


def _interaction(values: Sequence[ArrayLike], noise: float, sure: float) -> float:
    """Return the variance of what is a member's own in a search; NaN if it is not known."""
    if len({np.size(own) for own in values}) != 1:
        return float("nan")
    table = np.asarray(values, float)  # [members, searches]
    if min(table.shape) < 2:
        return float("nan")
    degrees = (table.shape[0] - 1) * (table.shape[1] - 1)
    own = table - table.mean(0) - table.mean(1, keepdims=True) + table.mean()
    return max(float(np.sum(own**2)) / _divisor(degrees, sure) - noise, 0.0)
