"""Times to a target: crossings, restricted means and their ratios."""

import math

import numpy as np
import pytest

from paceline.analysis.statistics.times import (
    NEVER,
    Crossing,
    area,
    crossing,
    p_value,
    pseudo_values,
    ratio_of_means,
    restricted_mean,
)

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


def at(*times):
    """Crossings at known times."""
    return [Crossing(time, time) for time in times]


def test_without_censoring_it_is_the_mean_and_its_standard_error():
    found = restricted_mean(at(100, 200, 600), horizon=1000)
    assert found.mean == 300
    assert found.variance == pytest.approx(np.var([100, 200, 600], ddof=1) / 3)
    assert (found.n, found.reached) == (3, 3)


def test_a_failure_counts_as_the_horizon():
    found = restricted_mean([*at(100, 200), NEVER], horizon=900)
    assert (found.mean, found.reached) == (400, 2)
    assert found.variance == pytest.approx(np.var([100, 200, 900], ddof=1) / 3)


def test_times_beyond_the_horizon_count_as_the_horizon():
    found = restricted_mean(at(100, 950), horizon=900)
    assert (found.mean, found.reached) == (500, 1)


def test_kaplan_and_meier_by_hand():
    """Of four runs one crosses at 10, one ends at 15, one crosses at 20, one ends at 30.

    Left: 1 to 10, 3/4 to 20, 3/4 x 1/2 to the horizon: 10 + 7.5 + 3.75.
    """
    times, crossed = np.array([10.0, 15, 20, 30]), np.array([True, False, True, False])
    assert area(times, crossed, 30) == pytest.approx(21.25)
    left_out = [area(times[[1, 2, 3]], crossed[[1, 2, 3]], 30)]
    assert left_out == pytest.approx([25.0])  # 1 to 20, 1/2 to 30
    assert pseudo_values(times, crossed, 30)[0] == pytest.approx(4 * 21.25 - 3 * 25)


def test_a_run_that_ended_early_might_have_crossed_later():
    runs = [*at(100, 300), Crossing(150, math.inf)]
    ended, failed = (restricted_mean([*runs[:2], last], 900) for last in (runs[2], NEVER))
    assert ended.mean < failed.mean


def test_runs_that_share_an_interval_between_evaluations_do_not_tell_its_place():
    """The seeds agree on the evaluation, 88 s apart: no certainty to the second."""
    found = restricted_mean([Crossing(352, 440)] * 3, horizon=1000)
    assert found.mean == 396
    assert found.variance == pytest.approx(88**2 / 12)
    low, high = found.interval()[1:]
    assert low < 352
    assert high > 440


def test_an_interval_stays_between_zero_and_the_horizon():
    low, high = restricted_mean([*at(1, 900), NEVER], horizon=1000).interval()[1:]
    assert low > 0
    assert high == 1000


@pytest.mark.parametrize("crossings", [at(100), [NEVER, NEVER], [Crossing(500, math.inf)] * 3])
def test_one_run_or_none_that_got_there_has_no_interval(crossings):
    found = restricted_mean(crossings, horizon=1000)
    assert math.isnan(found.variance)
    assert math.isnan(found.interval().low)
    assert math.isnan(found.interval().high)


def test_where_no_run_got_there_the_mean_is_the_horizon():
    assert restricted_mean([NEVER, Crossing(500, math.inf)], horizon=1000).mean == 1000


def group(*times, failed=0):
    runs = [Crossing(time, time) for time in times] + [NEVER] * failed
    return restricted_mean(runs, horizon=2000)


def test_a_speed_up_is_the_ratio_of_restricted_means():
    best, many = group(900, 1100), group(240, 260)
    found = ratio_of_means(best, many)
    assert found.value == pytest.approx(1000 / 250)
    assert found.low < 4 < found.high


def test_degrees_of_freedom_follow_the_side_that_varies():
    """By Welch and Satterthwaite: a steady baseline leaves those of the other side."""
    found = ratio_of_means(group(1000, 1000.001), group(200, 300, 250, 260))
    spread = np.sqrt(np.var([200, 300, 250, 260], ddof=1) / 4) / 252.5
    assert math.log(found.high / found.value) == pytest.approx(3.1824 * spread, rel=1e-3)


def test_failures_slow_a_scheme_down_and_widen_its_interval():
    best = group(900, 1100, 1000, 950)
    sound, failing = (
        ratio_of_means(best, each)
        for each in (group(240, 260, 250, 255), group(240, 260, 250, failed=1))
    )
    assert failing.value < sound.value / 2
    assert failing.high / failing.low > sound.high / sound.low


def test_a_scheme_that_never_gets_there_has_no_interval():
    found = ratio_of_means(group(900, 1100), group(failed=3))
    assert found.value == 0.5  # at most: the horizon stands for its time
    assert math.isnan(found.low)
    assert math.isnan(found.high)


def test_a_p_value_is_one_less_the_level_whose_interval_ends_at_1():
    one, other = group(900, 1100, 1000), group(700, 800, 950)
    p = p_value(one, other)
    assert 0.05 < p < 0.2
    assert ratio_of_means(one, other, level=1 - p).low == pytest.approx(1)
    assert math.isnan(p_value(one, group(failed=3)))
