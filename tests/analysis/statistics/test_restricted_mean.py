import math

import numpy as np
import pytest

from paceline.analysis.statistics.times import NEVER, Crossing, area, pseudo_values, restricted_mean


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
