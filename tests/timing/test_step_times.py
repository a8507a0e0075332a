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


GOLDEN = [
    5.547000782132708,
    6.37558883528786,
    26.58778632523599,
    2.2579448629277286,
    1.2187330860147734,
    2.571907643674566,
]


@settings("cluster")
class Paced(AbstractPacing):
    """A cluster of which nothing but the pacing matters."""


def times(batch_size=32, seed=0, **cluster) -> StepTimes:
    found = Paced(**{**STEADY, **cluster}).step_times(batch_size, seed)
    assert found is not None
    return found


def test_without_step_seconds_nothing_is_emulated():
    assert Paced(**{**STEADY, "step_seconds": None}).step_times(batch_size=1, seed=0) is None


def test_the_first_workers_are_slow_in_every_step():
    found = times(slow_workers=2, slow_factor=3)
    assert [found.seconds(worker, step) for worker in range(3) for step in range(2)] == [
        *[6.0] * 4,
        *[2.0] * 2,
    ]


def test_certain_stragglers_multiply_with_slow_workers():
    found = times(slow_workers=1, slow_factor=3, straggler_probability=1, straggler_factor=5)
    assert [found.seconds(worker, 7) for worker in range(2)] == [30.0, 10.0]


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


def test_the_same_draws_for_ever():
    """Records of long ago were made with them."""
    found = StepTimes(2.0, 0.3, 1, 3.0, 0.1, 5.0, seed=4)
    drawn = [found.seconds(worker, step) for worker in (0, 1) for step in (0, 1, 99)]
    assert drawn == pytest.approx(GOLDEN, rel=1e-14)


def test_draws_depend_on_seed_worker_and_step_alone():
    settings = {"step_jitter": 0.3, "straggler_probability": 0.1, "straggler_factor": 4}
    first, again = times(seed=5, **settings), times(seed=5, **settings)
    places = [(worker, step) for worker in range(4) for step in range(50)]
    drawn = [first.seconds(*place) for place in places]
    assert drawn[::-1] == [again.seconds(*place) for place in reversed(places)]
    assert len(set(drawn)) == len(places)
    assert times(seed=6, **settings).seconds(0, 0) != first.seconds(0, 0)


@pytest.mark.parametrize(
    ("batch_size", "seconds"),
    [(16, 1.0), (24, 1.5), (32, 2.0), (40, 2.25), (64, 3.0), (8, 0.5), (128, 6.0)],
)
def test_step_seconds_by_batch_size(batch_size, seconds):
    """Linear between, in proportion beyond."""
    found = times(batch_size, step_seconds={64: 3.0, 16: 1.0, 32: 2.0})
    assert found.step_seconds == pytest.approx(seconds, rel=1e-15)


@pytest.mark.parametrize("value", [{}, {32: 0}, {32: None}, {0: 1.0}, {"32": 1.0}, {True: 1.0}])
def test_bad_step_seconds_by_batch_size_are_refused(value):
    with pytest.raises(SettingError) as refused:
        times(step_seconds=value)
    assert refused.value.setting == "cluster.step_seconds"
    assert refused.value.message.endswith(f", not {value!r}")


def test_a_bad_step_seconds_is_told_what_may_be_there_instead():
    with pytest.raises(SettingError) as refused:
        times(step_seconds={32: -1})
    assert str(refused.value) == (
        "cluster.step_seconds: a number above 0, or {batch_size: seconds} with numbers above 0, "
        "is needed, not {32: -1}"
    )


def test_a_worker_can_become_slow_on_the_way():
    times = StepTimes(0.5, slow_workers=1, slow_factor=5, slow_from=2)
    assert [times.seconds(0, step) for step in range(4)] == [0.5, 0.5, 2.5, 2.5]
    assert times.seconds(1, 3) == 0.5


RATE = StepRate(fixed=0.5, per_image=0.25, batch_sizes=[4, 16], rows=["some row"])


def test_a_step_is_a_fixed_part_and_one_for_each_image():
    assert RATE.seconds(4) == 1.5
    assert RATE.seconds(1) == 0.75


@pytest.mark.parametrize(("size", "covered"), [(3, False), (4, True), (16, True), (17, False)])
def test_what_the_rate_was_fitted_to(size, covered):
    assert RATE.covers(size) is covered
