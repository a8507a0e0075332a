import pytest

from paceline.analysis.statistics.means import success_rate


def test_no_success_and_nothing_but_success_leave_room():
    """Clopper and Pearson: (alpha / 2)^(1/n) is the end for 0 or n successes."""
    none, all_three = success_rate(0, 3), success_rate(3, 3)
    assert (none.low, none.high) == pytest.approx((0, 1 - 0.025 ** (1 / 3)))
    assert (all_three.low, all_three.high) == pytest.approx((0.025 ** (1 / 3), 1))


def test_half_of_eight():
    found = success_rate(4, 8)
    assert found == pytest.approx((0.5, 0.1570, 0.8430), abs=1e-4)
