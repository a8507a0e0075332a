import numpy as np
import pytest
from scipy.stats import t, ttest_1samp

from paceline.analysis.statistics.means import (
    POINTS,
    POSITIVE,
    intervals_of_means,
    logit_of,
    pooled,
    variance_of_logit,
)


def test_the_variance_is_that_of_all_groups_and_single_runs_add_none():
    family = pooled([[1.0, 3.0], [10.0, 10.0, 16.0], [7.0]])
    assert family.variance == pytest.approx((2 + 24) / 3)
    assert family.degrees == 3
    assert family.means == pytest.approx([2, 12, 7])
    assert np.all(np.isfinite(intervals_of_means(family).low))  # the single run borrows a variance


def test_one_group_has_the_interval_of_student():
    values = [88.1, 87.9, 88.6]
    found, peer = intervals_of_means(pooled([values])), ttest_1samp(values, 0)
    peer = peer.confidence_interval(0.95)
    assert (found.low[0], found.high[0]) == pytest.approx((peer.low, peer.high))


def test_single_runs_alone_have_no_interval():
    found = intervals_of_means(pooled([[0.5], [0.7]]))
    assert found.value == pytest.approx([0.5, 0.7])
    assert np.isnan(found.low).all()


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
