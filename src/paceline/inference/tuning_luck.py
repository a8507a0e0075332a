"""Computes how much the luck of tuning moves the result of what it chose."""

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import Normal, order_statistic

from paceline.inference.estimate import Array


def variance_of_chosen(
    scores: Sequence[ArrayLike], values: Sequence[ArrayLike], noise: float
) -> float:
    """Return the variance of the mean value at the best of all searches, were they repeated.

    Each member of a family has the `scores` [searches] of the best trial of each of its searches,
    by which the best of these is chosen, and their `values` [searches] on other images. Every trial
    has one run, whose luck is in both: `noise` is the variance of a value between seeds. Members
    are taken to be alike but for their means, and normal: of the best of m, whatever goes with its
    score varies less, and the rest as of any. NaN if no member has two searches.
    """
    pairs = [
        np.stack([np.asarray(own, float), np.asarray(other, float)])
        for own, other in zip(scores, values, strict=True)
    ]
    pairs = [pair for pair in pairs if pair.shape[1] > 1]
    if not pairs:
        return float("nan")
    degrees = sum(pair.shape[1] - 1 for pair in pairs)
    products = np.sum([_products(pair) for pair in pairs], axis=0) / degrees
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
