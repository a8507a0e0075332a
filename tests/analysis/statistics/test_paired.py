"""A family of runs paired by seed: differences are free of what the seeds explain."""

import numpy as np
import pytest

from paceline.analysis.statistics.means import paired, pooled
from paceline.analysis.statistics.multiple_comparisons import against_reference, unadjusted
from paceline.analysis.statistics.times import (
    Crossing,
    family_of,
    restricted_mean,
)

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
