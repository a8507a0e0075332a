import numpy as np
import pytest
from scipy.stats import dunnett, ttest_ind

from paceline.analysis.statistics.means import POSITIVE, pooled
from paceline.analysis.statistics.multiple_comparisons import (
    against_reference,
    for_equivalence,
)

RNG = np.random.default_rng(3)
GROUPS = [RNG.normal(mean, 1, n) for mean, n in ((0, 6), (1, 3), (0.5, 4), (2, 5), (0.1, 9))]
REFERENCE, *OTHERS = GROUPS
PEER = dunnett(*OTHERS, control=REFERENCE, rng=np.random.default_rng(0))


def test_intervals_are_scipy_s_dunnett():
    found, peer = against_reference(pooled(GROUPS), 0), PEER.confidence_interval(0.95)
    assert found.low == pytest.approx(peer.low, abs=5e-3)
    assert found.high == pytest.approx(peer.high, abs=5e-3)


def test_an_interval_of_level_1_less_scipy_s_p_value_ends_at_0():
    """Up to the error of scipy's, which is quasi Monte Carlo."""
    for other, (p, value) in enumerate(zip(PEER.pvalue, PEER.statistic, strict=True)):
        found = against_reference(pooled(GROUPS), 0, level=1 - p)
        end = found.low if value > 0 else found.high
        assert end[other] == pytest.approx(0, abs=5e-3)


def test_any_group_may_be_the_reference():
    first, last = pooled(GROUPS), pooled([*OTHERS, REFERENCE])
    assert against_reference(last, 4).low == pytest.approx(against_reference(first, 0).low)


def test_two_groups_alone_are_student_s_t_test():
    found = against_reference(pooled(GROUPS[:2]), 0)
    peer = ttest_ind(GROUPS[1], GROUPS[0]).confidence_interval(0.95)
    assert (found.low[0], found.high[0]) == pytest.approx((peer.low, peer.high))
    narrow = ttest_ind(GROUPS[1], GROUPS[0]).confidence_interval(0.90)
    assert for_equivalence(pooled(GROUPS[:2]), 0).low[0] == pytest.approx(narrow.low)


def test_ratios_of_times_stay_above_zero_and_turn_over():
    times = [np.array([300.0, 340.0, 900.0]), np.array([100.0, 400.0, 800.0])]
    found, turned = (against_reference(pooled(pair, POSITIVE), 0) for pair in (times, times[::-1]))
    assert 0 < found.low[0] < found.value[0] < found.high[0]
    assert 1 / turned.value[0] == pytest.approx(found.value[0])
    assert 1 / turned.high[0] == pytest.approx(found.low[0])


def test_an_error_that_is_not_in_the_family_widens_the_intervals():
    family = pooled(GROUPS)
    narrow, wide = (against_reference(family, 0, extra_variance=extra) for extra in (0.0, 0.5))
    assert np.all(wide.high - wide.low > narrow.high - narrow.low)


def test_groups_of_one_seed_have_contrasts_and_no_intervals():
    found = against_reference(pooled([[0.9], [0.8]]), 0)
    assert found.value[0] == pytest.approx(-0.1)
    assert np.isnan(found.low[0])
    assert np.isnan(found.high[0])
