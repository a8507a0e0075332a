import os
from types import SimpleNamespace

import pytest

from paceline.run.training_process import _threads_of_server
from tests.tiny import run_tiny, tiny_point

PACED = {"cluster__step_seconds": 0.005}


@pytest.mark.parametrize(
    ("scheme", "pace", "yielding"),
    [
        ("async_parameter_server", PACED, ["gave_way_0", "gave_way_1"]),
        ("async_parameter_server", {}, []),
        ("sync_allreduce", PACED, []),
    ],
)
def test_paced_workers_alone_give_way_to_servers_on_their_machine(scheme, pace, yielding, tmp_path):
    run_tiny(tiny_point(scheme, 2, 4, **pace), tmp_path)
    assert sorted(path.name for path in tmp_path.glob("gave_way_*")) == yielding


@pytest.mark.parametrize(
    ("device", "here", "asked", "threads"),
    [("cpu", 2, 1, 1), ("cuda", 2, 1, 8), ("cuda", 5, 1, 3), ("cuda", 40, 1, 1), ("cuda", 5, 4, 4)],
)
def test_a_server_beside_workers_on_gpus_uses_its_share_of_16_cores(
    device, here, asked, threads, monkeypatch
):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(16))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(here))
    cluster = SimpleNamespace(threads_per_worker=asked)
    assert _threads_of_server(SimpleNamespace(device=device, cluster=cluster)) == threads
