"""Paced runs on real processes: what is computed stays, only when it is sent changes."""

import os

import pytest
from torch.testing import assert_close

from paceline.timing.step_times import Pace, StepTimes, give_way
from tests.tiny import NUM_TRAIN, run_together, tiny_point

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


def test_late_wake_ups_cost_one_delay_however_many_there_are(clock):
    clock.late = 0.25
    for compute in (0.0, 0.5, 1.5):
        pace, begun = Pace(STEADY, worker=0), clock.now
        for step in range(1, 9):
            pace.begin()
            clock.now += compute
            pace.wait()
            assert clock.now - begun == pytest.approx(2 * step + 0.25)
        assert pace.late_steps == 0


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="Linux alone has this policy")
def test_who_gives_way_asks_for_cores_that_nobody_wants(monkeypatch):
    asked = []
    monkeypatch.setattr(os, "sched_setscheduler", lambda *words: asked.append(words))
    give_way()
    ((process, policy, param),) = asked
    assert (process, policy, param.sched_priority) == (0, os.SCHED_IDLE, 0)


def test_a_step_that_is_over_already_is_late(clock):
    """Each has its own duration; what an accelerator exchanges within one comes on top."""
    times = StepTimes(2.0, 0.3, 1, 3.0, 0.1, 5.0, seed=4)
    pace, slept = Pace(times, worker=1), []
    for step, (compute, exchanging) in enumerate([(9.0, 0.0), (0.5, 0.0), (9.0, 0.25), (0.0, 0.5)]):
        pace.begin()
        clock.now += compute
        pace.wait(exchanging)
        slept += [times.seconds(1, step) + exchanging - compute] if compute < 9 else []
    assert clock.slept == pytest.approx(slept, rel=1e-12)
    assert pace.late_steps == 2


@pytest.mark.parametrize(("scheme", "workers"), [(SYNC, 1), (SYNC, 2), (ASYNC, 1)])
def test_pacing_changes_no_weight_and_every_step_is_paced_once(scheme, workers, tmp_path):
    """Worker 0 is slow, and synchronous workers wait for it. No real step takes only 1 ns: all are
    late, also by the hook that Lightning registers on CUDA only.
    """
    slow = {"cluster__step_seconds": 0.005, "cluster__slow_workers": 1, "cluster__slow_factor": 5}
    paces = ({}, slow, {"cluster__step_seconds": 1e-9})
    configs = [tiny_point(scheme, workers, 8, measurement__evaluations=1, **each) for each in paces]
    (native, expected), (paced, weights), (late, _) = run_together(configs, tmp_path)
    assert_close(weights, expected, rtol=1e-12, atol=0)
    steps = 3 * NUM_TRAIN // 8 // workers
    assert [worker.steps for worker in paced.workers] == [steps] * workers
    assert [worker.late_steps for worker in native.workers] == [0] * workers
    assert [worker.late_steps for worker in late.workers] == [steps] * workers
    for worker in paced.workers:  # each waits for worker 0 from its second step on
        assert worker.step_ends[-1] >= 0.99 * (steps - 1) * 0.025
