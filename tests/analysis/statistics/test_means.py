"""Means of groups in a space, with a variance pooled over groups, and of runs paired by seed."""

import numpy as np
import pytest
from scipy.stats import t

from paceline.analysis.statistics.means import (
    POINTS,
    POSITIVE,
    intervals_of_means,
    logit_of,
    paired,
    pooled,
    variance_of_logit,
)
from paceline.analysis.statistics.multiple_comparisons import against_reference, unadjusted
from paceline.analysis.statistics.times import (
    Crossing,
    family_of,
    restricted_mean,
)


def test_the_variance_is_that_of_all_groups_and_single_runs_add_none():
    family = pooled([[1.0, 3.0], [10.0, 10.0, 16.0], [7.0]])
    assert family.variance == pytest.approx((2 + 24) / 3)
    assert family.degrees == 3
    assert family.means == pytest.approx([2, 12, 7])
    assert np.all(np.isfinite(intervals_of_means(family).low))  # the single run borrows a variance


@pytest.mark.parametrize(
    ("space", "values", "low", "high"),
    [
        (POINTS, [0.999, 0.90], 0, 1),
        (POSITIVE, [1.0, 5000.0], 0, np.inf),
        (logit_of(2000), [1.0, 0.9995, 0.998], 0, 1),
        (logit_of(2000), [0.0, 0.0, 0.001], 0, 1),
    ],
)
def test_no_interval_leaves_its_space(space, values, low, high):
    found = intervals_of_means(pooled([values], space))
    assert low <= found.low[0] <= found.value[0] <= found.high[0] <= high


def test_what_goes_into_a_space_comes_back():
    shares = np.array([0.0, 0.25, 0.9, 1.0])
    space = logit_of(40)
    assert space.back(space.into(shares)) == pytest.approx(shares, abs=1e-12)
    assert POSITIVE.back(POSITIVE.into([2.5])) == pytest.approx([2.5])


def test_an_error_that_all_runs_share_does_not_shrink_with_their_number():
    same = pooled([np.full(50, 0.9)], logit_of(1000))
    found = intervals_of_means(same, extra_variance=1 / 90)
    half = 1.96 * np.sqrt(0.9 * 0.1 / 1000)  # binomial; seeds tell nothing here
    assert found.high[0] - found.low[0] == pytest.approx(2 * half, rel=0.02)


@pytest.mark.parametrize("extra", [0.0, 0.2, 1.5])
def test_a_sum_of_two_variances_has_the_degrees_of_satterthwaite(extra):
    """v = a + b, where b is known and a has 4 degrees: v^2 / (a^2 / 4)."""
    family = pooled([[1.0, 3.0, 2.0], [10.0, 10.0, 16.0]])
    own = family.variance_of_means()
    total = own + extra
    half = t.ppf(0.975, total**2 / (own**2 / 4)) * np.sqrt(total)
    found = intervals_of_means(family, extra)
    assert found.high - found.value == pytest.approx(half)


def test_a_logit_has_the_error_of_a_binomial_share_by_its_slope():
    variance, slope = 0.88 * 0.12 / 10_000, 1 / (0.88 * 0.12)
    assert variance_of_logit(0.88, 10_000) == pytest.approx(variance * slope**2, rel=1e-3)
    assert np.isfinite(variance_of_logit(1.0, 10_000))


TABLE = np.array([[1.0, 2.0, 4.0], [2.0, 3.5, 4.5], [0.0, 1.0, 3.0]])  # [groups, seeds]


def test_two_groups_are_those_of_a_paired_t_test():
    from scipy.stats import ttest_rel

    family = paired(TABLE[:2])
    assert (family.degrees, family.sizes.tolist()) == (2, [3, 3])
    expected = ttest_rel(TABLE[1], TABLE[0])
    found = against_reference(family, 0)
    interval = expected.confidence_interval()
    assert found.at(0) == pytest.approx((2 / 1.5 - 1 / 3, interval.low, interval.high))
    assert unadjusted(family)[0] == pytest.approx(expected.pvalue)


def test_what_all_seeds_share_changes_no_difference():
    moved = TABLE + np.array([100.0, -50.0, 7.0])
    expected = against_reference(paired(TABLE), 0)
    np.testing.assert_allclose(against_reference(paired(moved), 0), expected)


def test_a_seed_that_one_group_alone_has_tells_nothing():
    more = np.column_stack([TABLE, [9.0, np.nan, np.nan]])
    expected = against_reference(paired(TABLE), 0)
    np.testing.assert_allclose(against_reference(paired(more), 0), expected)


def test_a_missing_run_costs_precision_of_its_group_most():
    table = TABLE.copy()
    table[2, 0] = np.nan
    family = paired(table)
    assert (family.degrees, family.sizes.tolist()) == (3, [3, 3, 2])
    one, two = family.variance_of_differences([1, 2], [0, 0])
    assert one < two
    many = np.stack([table, table + 1])
    assert paired(many).means == pytest.approx(np.stack([family.means, family.means + 1]))


def test_without_common_seeds_groups_are_independent():
    apart = np.array([[1.0, 2.0, np.nan, np.nan], [np.nan, np.nan, 2.0, 5.0]])
    family, plain = paired(apart), pooled([[1.0, 2.0], [2.0, 5.0]])
    assert family.covariance is None
    assert (family.variance, family.degrees) == (plain.variance, plain.degrees) == (2.5, 2)
    assert paired([[1.0], [2.0]]).degrees == 0


def times(values, seeds=range(4)):
    return restricted_mean([Crossing(v, v) for v in values], 1000.0, [*seeds])


def test_a_family_of_times_is_paired_where_seeds_are_shared():
    slow, fast = [400.0, 300.0, 420.0, 310.0], [205.0, 150.0, 207.0, 158.0]
    one, other = times(slow), times(fast)
    apart = times(fast, range(4, 8))
    together, alone = family_of([one, other]), family_of([one, apart])
    assert (together.degrees, alone.degrees) == (3, 6)
    for family in (together, alone):
        assert family.means == pytest.approx(np.log([one.mean, other.mean]))
    width, wide = (each.variance_of_differences([0], [1])[0] for each in (together, alone))
    assert width < 0.1 * wide
    assert unadjusted(together) < unadjusted(alone)
    unknown = (restricted_mean([Crossing(v, v) for v in own], 1000.0) for own in (slow, fast))
    assert unadjusted(family_of([*unknown])) == unadjusted(alone)
