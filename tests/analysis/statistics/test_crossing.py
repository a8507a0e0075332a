import math

import pytest

from paceline.analysis.statistics.times import NEVER, Crossing, crossing

TIMES = [10.0, 20.0, 30.0, 40.0, 50.0, 60.0]


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        ([0.1, 0.2, 0.9, 0.9, 0.9, 0.9], 20, 30),
        ([0.9, 0.9, 0.9, 0.1, 0.1, 0.1], 0, 10),
        ([0.1, 0.9, 0.1, 0.9, 0.9, 0.9], 30, 40),  # one lucky evaluation is no crossing
        ([0.9, 0.9, 0.1, 0.1, 0.9, 0.9], 40, 50),  # two, and then the run ended
        ([0.1, 0.1, 0.1, 0.1, 0.1, 0.8], 50, 60),  # the last; just the target
        ([0.9, 0.9, 0.1, 0.9, 0.9, 0.1], 60, math.inf),
        ([0.1, float("nan"), 0.1, 0.1, 0.1, 0.1], 60, math.inf),
        ([0.8, 0.9, 0.7, 0.8, 0.9, 0.9], 30, 40),  # twice is not three times
        ([0.8, 0.8, 0.8, 0.8, 0.8, 0.8], 0, 10),
    ],
)
def test_a_crossing_is_before_three_evaluations_in_a_row_or_the_last(values, low, high):
    assert crossing(TIMES, values, 0.8) == (low, high)


def test_a_run_without_evaluations_has_not_crossed():
    assert crossing([], [], 0.8) == Crossing(0, math.inf)


def test_a_crossing_is_taken_at_its_middle_and_a_run_without_at_its_end():
    assert Crossing(20, 30).middle == 25
    assert Crossing(60, math.inf).middle == 60
    assert not Crossing(60, math.inf).reached
    assert not NEVER.reached
