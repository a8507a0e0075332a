"""Workers that fall silent: the launcher names them, and ends them as if they had been killed."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from paceline.cluster.processes import preload
from paceline.cluster.supervisor import LostWorker, ProcessFailure, Task
from paceline.run.run_point import PROCESS
from tests.tiny import point_of, tiny_point

STOPPED = "silent for 6 s: stopped, or hung"
HUNG = "silent for 6 s in a step of its own"
CASES = {
    ("sync_allreduce", "stop"): STOPPED,
    ("sync_allreduce", "hang"): HUNG,
    ("stale_synchronous", "stop"): STOPPED,
    ("local_sgd", "hang"): HUNG,
    ("gossip", "stop"): STOPPED,
    ("virtual", "stop"): STOPPED,
    ("async_parameter_server", "stop"): STOPPED,
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """What came of each case, all at once: they wait most of the time."""
    preload()
    given = []
    for scheme, how in CASES:
        virtual, folder = scheme == "virtual", tmp_path_factory.mktemp(f"{scheme}-{how}")
        config = tiny_point(
            "local_sgd" if virtual else scheme,
            2,
            4,
            cluster="virtual" if virtual else "local",
            cluster__timeout_seconds=6,
            training__epochs=40,
            model___target_="tests.clock.wall.silent.SilentClassifier",
            model__how=how,
            model__silent=0 if virtual else 1,
            model__folder=str(folder),
        )
        given.append((point_of(config), folder))
    with ThreadPoolExecutor(len(given)) as pool:
        return dict(zip(CASES, pool.map(outcome, given), strict=True))


def outcome(given):
    point, folder = given
    task = Task(
        PROCESS,
        (point, folder),
        *point.num_processes,
        folder / "log",
        timeout_seconds=point.cluster.timeout_seconds,
    )
    try:
        return point.cluster.run(task)
    except ProcessFailure as failure:
        return failure


@pytest.mark.parametrize(("scheme", "how"), CASES)
@pytest.mark.slow
def test_a_silent_worker_is_named(scheme, how, outcomes):
    found = outcomes[scheme, how]
    if scheme in ("stale_synchronous", "async_parameter_server"):
        assert LostWorker(1, CASES[scheme, how]) in found
    else:
        name = "worker 0" if scheme == "virtual" else "worker 1"
        assert str(found) == f"{name}: {CASES[scheme, how]}"
        assert found.environment
