"""What a supervisor makes of silence, by a clock that the tests set."""

from pathlib import Path

import pytest

from paceline.cluster.child import Alive, Ended, Raised, Returned, Tolerated
from paceline.cluster.supervisor import (
    AbstractProcesses,
    LostWorker,
    ProcessFailure,
    Supervisor,
    Task,
)

LIMIT = 10.0


class Scripted(AbstractProcesses):
    """Processes that report what is written for each second, after which `time` has passed."""

    def __init__(self, *script):
        self._script, self.time, self.killed = list(script), 0.0, []

    def listen(self, seconds):
        passed, reports = self._script.pop(0)
        self.time += passed
        return reports

    def kill(self, rank):
        self.killed.append(rank)

    def supervised(self, training, servers=0, shards=1):
        task = Task("", (), training, servers, Path(), shards, timeout_seconds=LIMIT)
        return Supervisor(self, task, clock=lambda: self.time).until_the_end()


def alive(*ranks, work=0.0):
    return [(rank, Alive(work)) for rank in ranks]


def test_a_suspended_machine_kills_no_process():
    """An hour passes between two looks, in which nobody could give a sign of life."""
    processes = Scripted(
        (1.0, alive(0, 1)),
        (3600.0, []),
        (1.0, alive(0, 1)),
        (3600.0, []),
        (1.0, [(0, Returned("first")), (1, Returned("second"))]),
    )
    assert processes.supervised(2) == ["first", "second"]
    assert processes.killed == []


def test_a_process_is_hung_when_it_was_silent_for_the_limit_and_no_sooner():
    silent = [(1.0, alive(0))] * 11
    processes = Scripted(*silent)
    with pytest.raises(ProcessFailure, match=r"^worker 1: silent for 10 s: stopped, or hung$"):
        processes.supervised(2)
    assert (processes.killed, processes.time) == ([1], LIMIT + 1)


def test_a_process_that_computes_alone_for_longer_than_the_limit_is_hung():
    processes = Scripted((1.0, alive(0, 1)), (1.0, [*alive(0), *alive(1, work=LIMIT + 1)]))
    with pytest.raises(ProcessFailure, match=r"^worker 1: silent for 10 s in a step of its own$"):
        processes.supervised(2)
    assert processes.killed == [1]


def test_a_silent_worker_without_which_its_server_goes_on_is_lost():
    silent = [(1.0, [*alive(0, 2), (2, Tolerated((1,)))])] * 11
    ended = [(0, Returned("worker")), (2, Returned("server"))]
    processes = Scripted(*silent, (1.0, ended))
    lost = LostWorker(1, "silent for 10 s: stopped, or hung")
    assert processes.supervised(2, servers=1) == ["worker", lost, "server"]


def test_the_end_of_a_worker_counts_after_what_its_server_says_at_once():
    first = [(1, Ended(-9)), (2, Tolerated((0, 1)))]
    processes = Scripted((1.0, first), (1.0, [(0, Returned("worker")), (2, Returned("server"))]))
    lost = LostWorker(1, "killed by SIGKILL")
    assert processes.supervised(2, servers=1) == ["worker", lost, "server"]


def test_a_part_of_a_split_worker_is_not_done_without():
    first = [(1, Ended(-9)), (2, Tolerated((0, 1)))]
    processes = Scripted((1.0, first), *[(1.0, alive(0, 2))] * 3)
    with pytest.raises(ProcessFailure, match=r"^worker 0 shard 1: killed by SIGKILL$"):
        processes.supervised(2, servers=1, shards=2)


def test_a_run_without_workers_ends_though_its_server_would_go_on():
    first = [(0, Ended(-9)), (1, Ended(-9)), (2, Tolerated((0, 1)))]
    processes = Scripted((1.0, first), (2.0, alive(2)))
    with pytest.raises(ProcessFailure, match=r"^worker 0: killed by SIGKILL$"):
        processes.supervised(2, servers=1)


@pytest.mark.parametrize(
    ("seconds", "named"), [(0.75, "worker 1: killed"), (1.5, "worker 0: lost")]
)
def test_a_failure_that_followed_from_another_waits_a_second_for_it(seconds, named):
    first = [(0, Raised("lost its peer", None, True, 1.0))]
    processes = Scripted((1.0, first), (seconds, []), (0.0, [(1, Ended(-9))]))
    with pytest.raises(ProcessFailure, match=f"^{named}"):
        processes.supervised(2)
