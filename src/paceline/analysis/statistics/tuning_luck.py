"""Estimates how much the luck of hyperparameter searches moves a difference in a family.

The members of a family are configurations that are compared with each other.
"""

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

    Each member of a family was searched several times, and then uses the best trial of all
    searches. `scores` [searches] of a member are the scores of the best trial of each search, and
    `values` [searches] are the results of these trials on other images. Every trial has one run;
    `noise` is the variance of a value between seeds. NaN if no member has two searches.

    The result is the smaller of two upper bounds, each of which holds with probability SURE because
    searches are few. The first is twice `variance_of_chosen`, as if the luck of each member were
    independent. The second is twice the variance of values after removing the mean of each search
    over members, since all members try the same points.
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
    """Return the variance of the mean value of the chosen trial if all searches were repeated.

    The chosen trial is the best one of all searches of a member. Arguments are those of
    `variance_of_difference`. Members are assumed to be normally distributed, and to differ only in
    their means. The part of a value that correlates with its score varies less, like the best of
    several scores. With `sure`, the variance between searches is replaced by an upper bound that
    holds with this probability. NaN if no member has two searches.
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
    """Return the variance of the largest of `number` standard normal numbers."""
    return float(order_statistic(Normal(), r=number, n=number).variance())


def _products(pair: Array) -> Array:
    centred = pair - pair.mean(axis=1, keepdims=True)
    return centred @ centred.T


def _divisor(degrees: int, sure: float | None) -> float:
    """Return the number by which to divide a sum of squares for a variance, or its upper bound."""
    return degrees if sure is None else float(chi2.ppf(1 - sure, degrees))


def _interaction(values: Sequence[ArrayLike], noise: float, sure: float) -> float:
    """Return the variance of the part of a value that is specific to one member and search.

    The result is an upper bound that holds with probability `sure`, less `noise`; NaN if it is
    unknown.
    """
    if len({np.size(own) for own in values}) != 1:
        return float("nan")
    table = np.asarray(values, float)  # [members, searches]
    if min(table.shape) < 2:
        return float("nan")
    degrees = (table.shape[0] - 1) * (table.shape[1] - 1)
    own = table - table.mean(0) - table.mean(1, keepdims=True) + table.mean()
    return max(float(np.sum(own**2)) / _divisor(degrees, sure) - noise, 0.0)
