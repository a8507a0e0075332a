"""Step times of an emulated accelerator, by hand."""

import math
from statistics import fmean, stdev

import pytest

from paceline.errors import SettingError
from paceline.settings import settings
from paceline.timing.step_times import AbstractPacing, StepRate, StepTimes

STEADY = {
    "step_seconds": 2.0,
    "step_jitter": 0,
    "slow_workers": 0,
    "slow_factor": 1,
    "straggler_probability": 0,
    "straggler_factor": 1,
}


@settings("cluster")
class Paced(AbstractPacing):
    """A cluster of which nothing but the pacing matters."""


def times(batch_size=32, seed=0, **cluster) -> StepTimes:
    found = Paced(**{**STEADY, **cluster}).step_times(batch_size, seed)
    assert found is not None
    return found


def test_stragglers_are_as_frequent_as_asked_for_on_every_worker():
    found = times(straggler_probability=0.25, straggler_factor=10)
    for worker in range(3):
        seconds = [found.seconds(worker, step) for step in range(2000)]
        assert set(seconds) == {2.0, 20.0}
        assert seconds.count(20.0) / 2000 == pytest.approx(0.25, abs=0.03)


def test_jitter_is_a_log_normal_factor_of_mean_one():
    found = times(step_seconds=1, step_jitter=0.5)
    seconds = [found.seconds(0, step) for step in range(20_000)]
    logarithms = [math.log(value) for value in seconds]
    assert fmean(seconds) == pytest.approx(1, abs=0.015)  # four standard errors
    assert fmean(logarithms) == pytest.approx(-0.125, abs=0.015)
    assert stdev(logarithms) == pytest.approx(0.5, abs=0.01)


def test_a_straggler_has_the_jitter_of_any_other_step():
    """Which steps straggle says nothing about their jitter: to four standard errors."""
    settings = {"step_seconds": 1, "step_jitter": 0.5}
    jitter, both = (
        times(**settings, straggler_probability=probability, straggler_factor=100)
        for probability in (0, 0.25)
    )
    places = [(worker, step) for worker in range(4) for step in range(4000)]
    alone = [math.log(jitter.seconds(*place)) for place in places]
    stragglers = [
        each
        for place, each in zip(places, alone, strict=True)
        if both.seconds(*place) == pytest.approx(100 * math.exp(each))
    ]
    assert len(stragglers) / len(places) == pytest.approx(0.25, abs=0.014)
    assert fmean(stragglers) == pytest.approx(-0.125, abs=0.032)
    assert stdev(stragglers) == pytest.approx(0.5, abs=0.023)


def test_step_seconds_by_batch_size():
    """Linear between, in proportion beyond."""
    known = {16: 1.0, 24: 1.5, 32: 2.0, 40: 2.25, 64: 3.0, 8: 0.5, 128: 6.0}
    of_three = {64: 3.0, 16: 1.0, 32: 2.0}
    found = {size: times(size, step_seconds=of_three).step_seconds for size in known}
    assert found == pytest.approx(known, rel=1e-15)
    for value in ({}, {32: 0}, {32: None}, {0: 1.0}, {"32": 1.0}, {True: 1.0}):
        with pytest.raises(SettingError) as refused:
            times(step_seconds=value)
        assert refused.value.setting == "cluster.step_seconds"
        assert refused.value.message.endswith(f", not {value!r}")


def test_factors_of_slow_workers_and_stragglers_multiply_from_a_step_on():
    certain = {"straggler_probability": 1, "straggler_factor": 5}
    found = StepTimes(2.0, slow_workers=2, slow_factor=3, slow_from=1, **certain)
    assert [[found.seconds(worker, step) for step in (0, 1, 7)] for worker in range(3)] == [
        *[[10.0, 30.0, 30.0]] * 2,
        [10.0] * 3,
    ]


def test_the_same_draws_for_ever():
    """Records of long ago were made with them."""
    found = StepTimes(2.0, 0.3, 1, 3.0, 0.1, 5.0, seed=4)
    drawn = [found.seconds(worker, step) for worker in (1, 0) for step in (99, 1, 0)]
    first = [5.547000782132708, 6.37558883528786, 26.58778632523599]
    second = [2.2579448629277286, 1.2187330860147734, 2.571907643674566]
    assert drawn[::-1] == pytest.approx([*first, *second], rel=1e-14)


def test_a_step_is_a_fixed_part_and_one_for_each_image():
    rate = StepRate(fixed=0.5, per_image=0.25, batch_sizes=[4, 16], rows=["some row"])
    assert [rate.seconds(size) for size in (1, 4)] == [0.75, 1.5]
    assert [rate.covers(size) for size in (3, 4, 16, 17)] == [False, True, True, False]
