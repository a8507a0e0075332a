"""A Monte Carlo test of staleness: its size, its power, and its distance by hand."""

from collections import Counter

import numpy as np
import pytest

from paceline.prediction.predict_points import compared_staleness


def drawn(draw, mean=7.0):
    return Counter(np.rint(draw.normal(mean, 2, 100)).clip(0).astype(int).tolist())


def test_the_distance_by_hand():
    found = compared_staleness(Counter({0: 1, 2: 3}), [Counter({0: 2, 1: 2}), Counter({0: 2})])
    assert found.distance == pytest.approx((0.5 + 0.25 + 0.75) / 2)


def test_one_more_draw_is_rejected_at_most_as_often_as_the_size_says():
    """19 draws: p is 1/20 only for the farthest; of 400, 20 are expected, 35 are 3.4 s.d. off."""
    draw = np.random.default_rng(0)
    found = [
        compared_staleness(drawn(draw), [drawn(draw) for _ in range(19)]).p for _ in range(400)
    ]
    assert 5 <= sum(p <= 0.05 for p in found) <= 35
    assert min(found) == pytest.approx(1 / 20)


def test_other_staleness_is_rejected():
    draw = np.random.default_rng(1)
    predicted = [drawn(draw) for _ in range(199)]
    assert compared_staleness(drawn(draw, 9), predicted).p == pytest.approx(1 / 200)


def test_equal_runs_are_alike():
    same = Counter({0: 5, 3: 1})
    assert compared_staleness(same, [same] * 9) == pytest.approx((0, 1))
