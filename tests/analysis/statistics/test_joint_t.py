import numpy as np
import pytest
from scipy.stats import multivariate_t, t

from paceline.analysis.statistics.multiple_comparisons import (
    joint_probability,
    loads,
    one_sided_critical,
    two_sided_critical,
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


def test_more_comparisons_need_wider_intervals_up_to_bonferroni_s():
    values = [two_sided_critical(loads((3,) * (k + 1), 0), 22, 0.95) for k in (1, 2, 10)]
    assert values[0] == pytest.approx(t.ppf(0.975, 22))
    assert values[0] < values[1] < values[2] < t.ppf(1 - 0.025 / 10, 22)


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
