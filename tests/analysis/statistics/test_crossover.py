import math

import numpy as np
import pytest
from scipy.optimize import isotonic_regression

from paceline.analysis.statistics.crossover import crossover, isotonic, overtakings
from paceline.analysis.statistics.means import POSITIVE

WORKERS = [4, 16, 64]


def rng():
    return np.random.default_rng(0)


@pytest.mark.parametrize(
    ("differences", "workers"),
    [
        ([-1, 1, 3], 8),  # half way from 4 to 16, in logarithms
        ([-3, -1, 3], 16 * 4**0.25),
        ([1, 2, 3], 0),  # ahead everywhere
        ([-3, -2, -1], math.inf),  # nowhere
        ([-1, 0, 1], 16),
        ([3, 2, -9], math.inf),  # loses what it had
    ],
)
def test_overtaking_is_interpolated_in_the_logarithm_of_workers(differences, workers):
    assert overtakings(WORKERS, np.array([differences], float))[0] == pytest.approx(workers)


def test_isotonic_is_scipy_s():
    rows = rng().standard_normal((50, 6))
    assert isotonic(rows) == pytest.approx(np.array([isotonic_regression(row).x for row in rows]))


def test_a_clear_crossover_has_a_narrow_interval_and_a_seed():
    noise = np.array([-0.1, 0.0, 0.1])
    challenger, other = [mean + noise for mean in (-1, 1, 3)], [noise] * 3
    found = crossover(WORKERS, challenger, other, rng())
    assert found.workers == pytest.approx(8)
    assert 7 < found.low < 8 < found.high < 9
    assert (found.everywhere, found.nowhere) == (0, 0)
    assert found == crossover(WORKERS, challenger, other, rng())


def test_none_in_the_range_is_an_outcome_with_its_share():
    """At the largest number of workers the two are alike, so that half of the draws say 'never'."""
    noise = np.array([-0.1, 0.0, 0.1])
    found = crossover(WORKERS, [noise - 2, noise - 1, noise], [noise] * 3, rng())
    assert found.nowhere == pytest.approx(0.5, abs=0.05)
    assert found.high == math.inf
    ahead = crossover(WORKERS, [noise + 1] * 3, [noise] * 3, rng())
    assert (ahead.workers, ahead.high, ahead.everywhere) == (0, 0, 1)


def test_rates_are_compared_by_ratios():
    rates = [np.array([90.0, 110.0]) * factor for factor in (0.5, 2, 8)]
    found = crossover(WORKERS, rates, [np.array([90.0, 110.0])] * 3, rng(), space=POSITIVE)
    assert found.workers == pytest.approx(8)


def test_single_runs_have_a_crossover_without_an_interval():
    found = crossover([4, 16], [[1.0], [3.0]], [[2.0], [2.0]], rng())
    assert found.workers == pytest.approx(8)
    assert math.isnan(found.low)
    assert math.isnan(found.nowhere)
