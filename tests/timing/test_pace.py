"""Paced runs on real processes: what is computed stays, only when it is sent changes."""

import os

import pytest
from torch.testing import assert_close

from paceline.timing.step_times import Pace, StepTimes, give_way
from tests.tiny import NUM_TRAIN, run_tiny, tiny_point

SYNC, ASYNC = "sync_allreduce", "async_parameter_server"
STEADY = StepTimes(2.0, 0, 0, 1, 0, 1, seed=0)


class ByHand:
    """A clock that only sleeping moves. `late`: seconds by which it wakes a sleeper too late."""

    def __init__(self):
        self.now = 100.0
        self.slept = []
        self.late = 0.0

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds + self.late

    def perf_counter(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    by_hand = ByHand()
    monkeypatch.setattr("paceline.timing.step_times.time", by_hand)
    return by_hand


def test_a_step_ends_when_the_emulated_one_has(clock):
    pace = Pace(STEADY, worker=0)
    clock.now += 5  # before the first step
    pace.begin()
    clock.now += 0.5  # real compute
    pace.wait()
    clock.now += 7  # communication and evaluation
    pace.begin()
    pace.wait()
    assert clock.slept == [1.5, 2.0]
    assert pace.late_steps == 0


def test_what_an_accelerator_exchanges_within_a_step_comes_on_top(clock):
    pace = Pace(STEADY, worker=0)
    pace.begin()
    clock.now += 0.5  # real compute and 0.3 seconds of exchange
    pace.wait(0.3)
    assert clock.slept == pytest.approx([1.8])
    assert pace.late_steps == 0


def test_a_step_that_is_over_already_is_late(clock):
    pace = Pace(STEADY, worker=0)
    for compute in (2.5, 1.0, 2.0):
        pace.begin()
        clock.now += compute
        pace.wait()
    assert clock.slept == [1.0]
    assert pace.late_steps == 2


@pytest.mark.parametrize("compute", [0.0, 0.5, 1.5])
def test_late_wake_ups_cost_one_delay_however_many_there_are(clock, compute):
    clock.late = 0.25
    pace, begun = Pace(STEADY, worker=0), clock.now
    for step in range(1, 9):
        pace.begin()
        clock.now += compute
        pace.wait()
        assert clock.now - begun == pytest.approx(2 * step + 0.25)
    assert pace.late_steps == 0


def test_each_step_has_its_own_duration(clock):
    times = StepTimes(2.0, 0.3, 1, 3.0, 0.1, 5.0, seed=4)
    pace = Pace(times, worker=1)
    for _ in range(5):
        pace.begin()
        pace.wait()
    assert clock.slept == pytest.approx([times.seconds(1, step) for step in range(5)], rel=1e-12)


def weights_of(folder, scheme, workers, **settings):
    folder.mkdir()
    config = tiny_point(scheme, workers, 8, measurement__evaluations=1, **settings)
    return run_tiny(config, folder)


def steps_of(seen, workers):
    assert len(seen.workers) == workers
    return [worker.steps for worker in seen.workers]


@pytest.mark.parametrize(("scheme", "workers"), [(SYNC, 1), (SYNC, 2), (ASYNC, 1)])
def test_pacing_changes_no_weight(scheme, workers, tmp_path):
    """Worker 0 is slow: synchronous workers wait for it."""
    paced = {"cluster__step_seconds": 0.005, "cluster__slow_workers": 1, "cluster__slow_factor": 5}
    seen, weights = weights_of(tmp_path / "paced", scheme, workers, **paced)
    native, expected = weights_of(tmp_path / "native", scheme, workers)
    assert_close(weights, expected, rtol=1e-12, atol=0)
    steps = 3 * NUM_TRAIN // 8 // workers
    assert steps_of(seen, workers) == [steps] * workers
    assert [worker.late_steps for worker in native.workers] == [0] * workers
    for worker in seen.workers:  # each waits for worker 0 from its second step on
        assert worker.step_ends[-1] >= 0.99 * (steps - 1) * 0.025


@pytest.mark.parametrize(("scheme", "workers"), [(SYNC, 1), (SYNC, 2), (ASYNC, 2)])
def test_every_step_is_paced_once(scheme, workers, tmp_path):
    """Also by the hook that Lightning registers on CUDA only: no real step is that fast."""
    seen, _ = weights_of(tmp_path / "late", scheme, workers, cluster__step_seconds=1e-9)
    assert [worker.late_steps for worker in seen.workers] == steps_of(seen, workers)


def test_asynchronous_workers_do_not_wait_for_a_slow_one(tmp_path):
    paced = {"cluster__step_seconds": 0.01, "cluster__slow_workers": 1, "cluster__slow_factor": 30}
    seen, _ = weights_of(tmp_path / "paced", ASYNC, 2, training__epochs=6, **paced)
    slow, fast = steps_of(seen, 2)
    assert slow + fast == 6 * NUM_TRAIN // 8
    assert slow < fast / 2


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="Linux alone has this policy")
def test_who_gives_way_asks_for_cores_that_nobody_wants(monkeypatch):
    asked = []
    monkeypatch.setattr(os, "sched_setscheduler", lambda *words: asked.append(words))
    give_way()
    ((process, policy, param),) = asked
    assert (process, policy, param.sched_priority) == (0, os.SCHED_IDLE, 0)
