"""Dunnett's intervals, Holm's p-values, and verdicts on differences and margins."""

from itertools import combinations

import numpy as np
import pytest
from scipy.stats import dunnett, multivariate_t, t, ttest_ind

from paceline.analysis.statistics.means import Estimate, pooled
from paceline.analysis.statistics.multiple_comparisons import (
    against_reference,
    for_equivalence,
    holm,
    joint_probability,
    judge,
    loads,
    one_sided_critical,
    two_sided_critical,
    unadjusted,
)

# Dunnett 1964, Biometrics 20, two-sided, 5 %, equal sizes: by degrees of freedom, 1 to 9 groups.
PUBLISHED = {
    5: (2.57, 3.03, 3.29, 3.48, 3.62, 3.73, 3.82, 3.90, 3.97),
    10: (2.23, 2.57, 2.76, 2.89, 2.99, 3.07, 3.14, 3.19, 3.24),
    20: (2.09, 2.38, 2.54, 2.65, 2.73, 2.80, 2.86, 2.90, 2.95),
}


@pytest.mark.parametrize("degrees", PUBLISHED)
def test_critical_values_are_those_that_dunnett_published(degrees):
    for num_groups, published in enumerate(PUBLISHED[degrees], 1):
        found = two_sided_critical(loads((4,) * (num_groups + 1), 0), degrees, 0.95)
        assert found == pytest.approx(published, abs=0.0051)


def test_probability_is_that_of_the_multivariate_t():
    """Unequal sizes; scipy's is a quasi Monte Carlo estimate."""
    load = loads((5, 2, 9, 4), 1)
    correlation = np.outer(load, load)
    np.fill_diagonal(correlation, 1)
    lower, upper = np.array([-2.0, -1.0, -3.0]), np.array([1.5, 2.0, 2.5])
    peer = multivariate_t(shape=correlation, df=7, seed=0)
    estimate = peer.cdf(upper, lower_limit=lower, maxpts=200_000)
    assert joint_probability(lower, upper, load, 7) == pytest.approx(estimate, abs=1e-4)


@pytest.mark.parametrize("size", [1, 4, 400])
@pytest.mark.parametrize("degrees", [1, 4, 300])
def test_alone_it_is_student_s_t_also_where_the_reference_is_small(size, degrees):
    probability = joint_probability(np.array([-1.0]), np.array([2.0]), loads((1, size), 0), degrees)
    assert probability == pytest.approx(t.cdf(2, degrees) - t.cdf(-1, degrees), abs=1e-7)


def test_the_worst_ends_are_half_of_either():
    """One critical value keeps its level, whichever end each statistic might cross."""
    load, inf = loads((3,) * 5, 0), np.inf
    c = one_sided_critical(load, 10, 0.95)
    levels = []
    for num_above in range(5):
        above = np.arange(4) < num_above
        lower, upper = np.where(above, -inf, -c), np.where(above, c, inf)
        levels.append(joint_probability(lower, upper, load, 10))
    assert min(levels) == levels[2] == pytest.approx(0.95)
    assert one_sided_critical(loads((3, 3), 0), 10, 0.95) == pytest.approx(t.ppf(0.95, 10))


RNG = np.random.default_rng(3)
GROUPS = [RNG.normal(mean, 1, n) for mean, n in ((0, 6), (1, 3), (0.5, 4), (2, 5), (0.1, 9))]
REFERENCE, *OTHERS = GROUPS
PEER = dunnett(*OTHERS, control=REFERENCE, rng=np.random.default_rng(0))


def test_intervals_are_scipy_s_dunnett():
    found, peer = against_reference(pooled(GROUPS), 0), PEER.confidence_interval(0.95)
    assert found.low == pytest.approx(peer.low, abs=5e-3)
    assert found.high == pytest.approx(peer.high, abs=5e-3)


def test_any_group_may_be_the_reference():
    first, last = pooled(GROUPS), pooled([*OTHERS, REFERENCE])
    assert against_reference(last, 4).low == pytest.approx(against_reference(first, 0).low)


def test_two_groups_alone_are_student_s_t_test():
    found = against_reference(pooled(GROUPS[:2]), 0)
    peer = ttest_ind(GROUPS[1], GROUPS[0]).confidence_interval(0.95)
    assert (found.low[0], found.high[0]) == pytest.approx((peer.low, peer.high))
    narrow = ttest_ind(GROUPS[1], GROUPS[0]).confidence_interval(0.90)
    assert for_equivalence(pooled(GROUPS[:2]), 0).low[0] == pytest.approx(narrow.low)


def test_an_error_that_is_not_in_the_family_widens_the_intervals():
    family = pooled(GROUPS)
    narrow, wide = (against_reference(family, 0, extra_variance=extra) for extra in (0.0, 0.5))
    assert np.all(wide.high - wide.low > narrow.high - narrow.low)


def test_groups_of_one_seed_have_contrasts_and_no_intervals():
    found = against_reference(pooled([[0.9], [0.8]]), 0)
    assert found.value[0] == pytest.approx(-0.1)
    assert np.isnan(found.low[0])
    assert np.isnan(found.high[0])


@pytest.mark.parametrize(
    ("low", "high", "verdict", "within"),
    [
        (1.2, 3.0, "better", False),
        (-3.0, -1.2, "worse", False),
        (-0.5, 0.6, "equivalent", True),
        (-1.5, 0.6, "not told", False),
        (0.1, 0.6, "better", True),  # different, and too little to matter
        (-0.6, -0.1, "worse", True),
        (float("nan"), float("nan"), "not told", False),
    ],
)
def test_difference_and_margin_are_two_questions(low, high, verdict, within):
    found = Estimate((low + high) / 2, low, high)
    judgement = judge(found, found, margin=1)
    assert (str(judgement.verdict), bool(judgement.within)) == (verdict, within)


def test_the_narrower_interval_decides_on_the_margin_alone():
    judgement = judge(Estimate(0.4, -0.3, 1.1), Estimate(0.4, -0.1, 0.9), margin=1)
    assert str(judgement.verdict) == "equivalent"


def test_holm_s_steps_by_hand():
    """0.01 x 4, 0.02 x 3, then 0.03 x 2 = 0.06 and 0.04 x 1, which may not be smaller."""
    assert holm(np.array([0.04, 0.01, 0.03, 0.02])) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm(np.array([0.9, 0.8])) == pytest.approx([1.0, 1.0])


def test_two_groups_have_the_p_value_of_student():
    first, second = [1.0, 2.0, 4.0], [3.0, 5.0, 9.0, 4.0]
    assert unadjusted(pooled([first, second])) == pytest.approx([ttest_ind(first, second).pvalue])


def test_p_values_are_in_the_order_of_combinations():
    p = holm(unadjusted(pooled([[0.0, 0.1], [0.0, 0.1], [9.0, 9.1]])))
    different = [
        pair for pair, each in zip(combinations(range(3), 2), p, strict=True) if each < 0.05
    ]
    assert different == [(0, 2), (1, 2)]
