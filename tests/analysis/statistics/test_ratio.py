import math

import numpy as np
import pytest

from paceline.analysis.statistics.times import (
    NEVER,
    Crossing,
    p_value,
    ratio_of_means,
    restricted_mean,
)


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
