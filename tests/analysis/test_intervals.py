"""Means, intervals and tests of them: by hand, and where the truth is known.

`python -m benchmarks planted_worlds` draws more of such worlds.
"""

import math

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_1samp

from benchmarks.planted_worlds import covered, resampled, told
from paceline.analysis.intervals import difference, holm, interval, p_above, p_differs, ratio


@pytest.mark.parametrize(
    ("values", "mean", "half"),
    [
        ((1.0, 3.0), 2.0, 12.706205),  # t(0.975, 1) = 12.7062047, s / sqrt(n) = 1
        ((1.0, 2.0, 3.0), 2.0, 2.484138),  # 4.3026527 / sqrt(3)
        ((2.0, 4.0, 4.0, 4.0, 6.0), 4.0, 1.755978),  # 2.7764451 * sqrt(2 / 5)
    ],
)
def test_interval_is_students(values, mean, half):
    found = interval(values)
    assert found.n == len(values)
    assert found.mean == pytest.approx(mean)
    assert (found.low, found.high) == pytest.approx((mean - half, mean + half), abs=1e-5)


def test_equal_values_have_no_width_one_has_no_interval_and_what_is_missing_does_not_count():
    assert interval([5.0, 5.0]) == (5.0, 5.0, 5.0, 2)
    alone = interval([7.0])
    assert (alone.mean, alone.n) == (7.0, 1)
    assert [math.isnan(end) for end in (alone.low, alone.high)] == [True, True]
    assert [interval(each).n for each in ([math.nan, 2.0, 2.0], [], [math.nan])] == [2, 0, 0]
    assert math.isnan(interval([math.nan]).mean)


def test_ratios_and_differences_are_paired_by_seed():
    """Ratios 2 and 8 have the geometric mean 4; seeds that one side lacks are left out."""
    one = pd.DataFrame({"seed": [0, 1, 2, 3], "speed": [2.0, 24.0, 9.0, math.nan]})
    other = pd.DataFrame({"seed": [1, 0, 3], "speed": [3.0, 1.0, 1.0]})
    found, log = ratio(one, other, "speed"), ttest_1samp(np.log([2, 8]), 0)
    ends = np.exp(log.confidence_interval(0.95))
    assert (found.mean, found.n) == (pytest.approx(4), 2)
    assert (found.low, found.high) == pytest.approx(tuple(ends))
    shares = [table.assign(top1=table["speed"] / 100) for table in (one, other)]
    assert difference(*shares, "top1").mean == pytest.approx(0.11)


def test_p_values_are_those_of_t_tests():
    values = np.array([0.3, -0.1, 0.4, 0.2])
    assert p_differs(values) == pytest.approx(ttest_1samp(values, 0).pvalue)
    assert p_differs(-values) == pytest.approx(ttest_1samp(values, 0).pvalue)
    assert p_above(values, 0.1) == pytest.approx(
        ttest_1samp(values, 0.1, alternative="greater").pvalue
    )
    assert math.isnan(p_above(values[:1], 0.1))
    assert math.isnan(p_differs(values[:1]))


def test_equal_values_are_above_what_is_below_them():
    """As the speeds of simulated runs that do not wait."""
    same = np.array([0.5, 0.5, 0.5])
    assert (p_above(same, 0.4), p_above(same, 0.5), p_differs(same), p_differs(0 * same)) == (
        0,
        1,
        0,
        1,
    )


def test_holm_adjusts_for_the_number_of_tests():
    """Of three, the smallest counts three times, the next twice; none is below one before it."""
    assert list(holm([0.03, 0.01, math.nan, 0.02])[[1, 3, 0]]) == pytest.approx([0.03, 0.04, 0.04])
    assert math.isnan(holm([math.nan, 0.5])[0])
    assert holm([math.nan, 0.5])[1] == 0.5
    assert list(holm([0.6, 0.7])) == [1, 1]


@pytest.mark.parametrize("world", [covered, resampled, told], ids=lambda world: world.__name__)
def test_what_is_promised_holds_in_planted_worlds(world):
    found = list(world(1000))
    assert [each for each in found if not each.least <= each.share <= each.most] == []


@pytest.mark.slow
def test_eight_seeds_find_half_a_point_more_often_than_five():
    found = {each.name: each.share for each in told(1000)}
    five, eight = (
        found[f"a scheme worse by 0.5 points found, unlike errors, n {n}"] for n in (5, 8)
    )
    assert five < 0.4
    assert eight > 0.65
