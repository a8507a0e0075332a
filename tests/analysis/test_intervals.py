import math

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_1samp

from paceline.analysis.intervals import difference, interval, ratio


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


def test_equal_values_have_an_interval_of_no_width():
    assert interval([5.0, 5.0]) == (5.0, 5.0, 5.0, 2)


def test_one_value_has_no_interval():
    found = interval([7.0])
    assert (found.mean, found.n) == (7.0, 1)
    assert math.isnan(found.low)
    assert math.isnan(found.high)


def test_what_is_missing_is_left_out_of_n():
    assert interval([math.nan, 2.0, 2.0]).n == 2
    assert interval([]).n == 0
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
