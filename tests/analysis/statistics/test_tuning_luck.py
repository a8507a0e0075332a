"""The luck of tuning in planted worlds: what would change if all searches were repeated."""

import math

import numpy as np
import pytest
from scipy.stats import chi2

from paceline.analysis.statistics.tuning_luck import (
    SURE,
    variance_of_chosen,
    variance_of_difference,
    variance_of_largest,
)

MEMBERS, NOISE = 6, 0.2


def searched(rng, searches, spread, worlds, shared=0.0):
    """Scores, values and true means [worlds, MEMBERS, searches] of the best trial of each.

    `spread` and `shared`: standard deviations of the luck that a member has for itself in a search,
    and of that which all have.
    """
    shape = (worlds, MEMBERS, searches)
    means = spread * rng.standard_normal(shape)
    means += shared * rng.standard_normal((worlds, 1, searches))
    runs = means + NOISE * rng.standard_normal(shape)
    scores, values = (runs + 0.1 * rng.standard_normal(shape) for _ in range(2))
    return scores, values, means


def of_best(scores, means):
    return np.take_along_axis(means, scores.argmax(-1)[..., None], -1)[..., 0]


def test_the_largest_of_normal_numbers():
    rng = np.random.default_rng(0)
    assert variance_of_largest(1) == pytest.approx(1)
    assert variance_of_largest(2) == pytest.approx(1 - 1 / math.pi)
    drawn = rng.standard_normal((200_000, 5)).max(axis=1).var()
    assert variance_of_largest(5) == pytest.approx(drawn, rel=0.02)


@pytest.mark.parametrize(("searches", "spread"), [(2, 0.5), (4, 0.5), (4, 0.2)])
def test_the_variance_is_that_of_repeated_searches(searches, spread):
    scores, values, means = searched(np.random.default_rng(1), searches, spread, 2000)
    noise = NOISE**2 + 0.1**2  # of a value between seeds, its images included
    found = [variance_of_chosen(s, v, noise) for s, v in zip(scores, values, strict=True)]
    assert np.mean(found) == pytest.approx(of_best(scores, means).var(), rel=0.15)


def test_without_repeated_searches_it_is_not_known():
    assert math.isnan(variance_of_chosen([[0.5]], [[0.5]], 0.0))
    for none in ([], [[], []], [[0.5], [0.4]]):
        assert math.isnan(variance_of_difference(none, none, 0.0))
    assert variance_of_chosen([[0.5, 0.5]], [[0.4, 0.4]], 0.0) == 0
    alike = variance_of_chosen([[0.5, 0.7], [0.5]], [[0.4, 0.6], [0.4]], 0.0)
    assert alike == pytest.approx(0.02 * variance_of_largest(2))


@pytest.mark.parametrize("searches", [2, 4])
@pytest.mark.parametrize("shared", [0.0, 0.2, 0.5, 2.0])
def test_no_difference_has_more_luck_than_is_said(searches, shared):
    scores, values, means = searched(np.random.default_rng(3), searches, 0.5, 600, shared)
    noise = NOISE**2 + 0.1**2
    found = [variance_of_difference(s, v, noise) for s, v in zip(scores, values, strict=True)]
    best = of_best(scores, means)
    true = (best - best.mean(axis=1, keepdims=True)).var(axis=1, ddof=1).mean() * 2
    assert np.mean(np.array(found) >= true) >= 0.87
    assert np.mean(found) < 6 / searches**0.5 * true


def test_luck_that_all_share_is_in_no_difference():
    values = [[0.5, 0.7], [0.4, 0.6], [0.6, 0.8]]
    assert variance_of_difference(values, values, 0.0) == pytest.approx(0, abs=1e-15)
    values[2] = [0.8, 0.6]  # residuals of 2, 2 and -4 thirtieths, with 2 degrees of freedom
    apart = 2 * 3 * 0.02 * variance_of_largest(2) / chi2.ppf(1 - SURE, 3)
    together = 2 * 2 * (2**2 + 2**2 + 4**2) / 30**2 / chi2.ppf(1 - SURE, 2)
    assert variance_of_difference(values, values, 0.0) == pytest.approx(min(apart, together))
    assert apart < together
    uneven = [[0.5, 0.7], [0.4, 0.6, 0.5]]
    alone = variance_of_chosen(uneven, uneven, 0.0, SURE)
    assert variance_of_difference(uneven, uneven, 0.0) == pytest.approx(2 * alone)
