"""Processes on several machines: their places, what they report, and what the head's orders do."""

import multiprocessing
import os
import stat
from functools import partial

import numpy as np
import pytest
import torch
import torch.distributed as dist

from paceline.clock.reports import ServerReport, StrategyReport, WorkerReport
from paceline.cluster.processes import LocalProcesses, preload
from paceline.cluster.supervisor import ProcessFailure, Task
from paceline.cluster.world import World, _load, _Order, _work, follow
from paceline.errors import SettingError
from paceline.record.point import Point
from paceline.run.training_process import run_recorded
from paceline.study.compose import composed
from tests.command_line import keep_forkserver
from tests.tiny import REPOSITORY


def serve_here(follower, port):
    """Follow as a process that torchrun has started, with the forkserver of these tests."""
    keep_forkserver()
    os.chdir(REPOSITORY)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
    follow(follower, "tests.cluster.counting:obey")


@pytest.fixture(scope="module")
def world():
    """Two nodes with two followers each, which end with their head's word."""
    preload()
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    start = multiprocessing.get_context("forkserver").Process
    followers = [start(target=serve_here, args=(number, store.port)) for number in range(4)]
    for each in followers:
        each.start()
    world = World(store, 2, 2)
    yield world
    world.dismiss(100)
    for each in followers:
        each.join(100)
        assert each.exitcode == 0


def run(world, folder, nodes, function, *arguments, servers=0):
    code = " ".join((function, *arguments))  # as the order of a head says it, beside the folder
    sizes = len(nodes) - servers, servers
    return world.run(Task("", (), *sizes, folder / "log", timeout_seconds=60, code=code), nodes)


def test_results_are_in_the_order_of_ranks_and_output_is_in_the_log(world, tmp_path):
    """Each process knows its rank in the run, and its rank on its node."""
    assert run(world, tmp_path, [0, 1, 1, 0], "tell_ranks", servers=1) == [
        ("0", "0", "2", "0"),
        ("1", "0", "2", "1"),
        ("2", "1", "2", "1"),
        ("3", "1", "2", "0"),
    ]
    logs = {path.name: path.read_text() for path in (tmp_path / "log").iterdir()}
    assert logs == {
        f"{name}.log": f"out {rank}\nerr {rank}\n"
        for rank, name in enumerate(("worker_0", "worker_1", "worker_2", "server_0"))
    }
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("exit", "worker 1: SystemExit: 3"),
        ("vanish", "worker 1: ended with exit code 7 and no result"),
        # of two that fail, not the one that only saw the other's end, though it is heard first
        ("peer", "worker 1: RuntimeError: the cause"),
    ],
)
def test_the_first_failure_is_told_and_the_followers_serve_on(world, how, reason, tmp_path):
    """The next run meets in a part of the store of its own."""
    with pytest.raises(ProcessFailure, match=f"^{reason}"):
        run(world, tmp_path, [0, 1], "fail", how)
    assert run(world, tmp_path, [0, 1], "count", "2") == [2, 2]
    assert run(world, tmp_path, [0, 0, 1], "count", "3") == [3, 3, 3]


def test_the_token_of_a_run_is_in_a_file_of_this_user_alone(world, tmp_path):
    first, second = (run(world, tmp_path, [0, 1], "tell_token") for _ in range(2))
    assert first[0] == first[1] != second[0] == second[1]
    token, mode = first[0]
    assert len(bytes.fromhex(token)) == 32
    assert stat.S_IMODE(mode) == 0o600


def test_a_folder_that_a_machine_does_not_see_is_a_setting_error(world, tmp_path, monkeypatch):
    """A path of the head's working directory, which the followers do not have."""
    monkeypatch.chdir(tmp_path)
    where = tmp_path.relative_to(tmp_path.parent)
    (tmp_path / where).mkdir()
    with pytest.raises(SettingError, match=r"^cluster: .* does not see .*: nodes must share the"):
        run(world, where, [0, 1], "count", "2")


def test_reports_travel_as_arrays_and_own_classes(tmp_path):
    worker = WorkerReport(0, 2, np.arange(2) / 3, "digest", timeline=[(0, "compute", 0.0, 1.0)])
    report = StrategyReport(1, 2, False, [worker], [ServerReport(0, pushes=[(0, 1)])])
    torch.save(report, tmp_path / "0.pt")
    found = _load(tmp_path / "0.pt")
    assert (found.workers[0].step_ends == worker.step_ends).all()
    found.workers[0].step_ends = worker.step_ends
    assert found == report


@pytest.mark.parametrize(
    "value", [partial(os.remove, "x"), os.system, multiprocessing.Process, LocalProcesses()]
)
def test_nothing_else_is_read(value, tmp_path):
    torch.save(value, tmp_path / "0.pt")
    with pytest.raises(Exception, match="Weights only load failed"):
        _load(tmp_path / "0.pt")


def linked(folder):
    (folder / "token").rename(folder / "other")
    (folder / "token").symlink_to(folder / "other")


DAMAGE = {
    "others may read it": lambda folder: (folder / "token").chmod(0o644),
    "a link": linked,
    "another user's": lambda folder: os.chown(folder / "token", 12345, -1),
    "in a folder of another user": lambda folder: os.chown(folder, 12345, -1),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_an_order_of_a_folder_that_others_may_write_is_not_carried_out(
    tmp_path, monkeypatch, damage
):
    if "user" in damage and os.geteuid() != 0:
        pytest.skip("only root may give files away")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "1")
    (tmp_path / "token").touch(0o600)
    order = _Order([0], [0], str(tmp_path), "code", 1, 1, 60.0)
    task, rank, _ = _work(0, order, 0, "here:there")
    assert (task.arguments, rank) == ((str(tmp_path), "code"), 0)
    DAMAGE[damage](tmp_path)
    with pytest.raises(PermissionError):
        _work(0, order, 0, "here:there")
    with pytest.raises(SettingError, match=r"^cluster: "):
        run_recorded(str(tmp_path), "other code")


APART, IN_TWOS = "cluster.server_placement=own_nodes", "cluster.workers_per_node=2"


@pytest.mark.parametrize(
    ("training", "servers", "setting", "nodes", "found"),
    [
        (4, 0, None, 2, [0, 0, 1, 1]),
        (3, 1, None, 2, [0, 0, 1, 0]),
        (1, 0, None, 2, [0]),
        (4, 3, None, 2, [0, 0, 1, 1, 0, 1, 0]),
        (2, 1, APART, 2, [0, 0, 1]),
        (2, 1, APART, 3, [0, 1, 2]),
        (3, 0, IN_TWOS, 2, [0, 0, 1]),
        (2, 0, IN_TWOS, 2, [0, 0]),
        (5, 0, IN_TWOS, 2, "3 nodes of workers are needed, not 2"),
        (2, 2, APART, 2, "1 nodes of workers and 2 of servers are needed, not 2"),
        (10, 0, None, 2, "5 processes run on a node: torchrun --nproc-per-node=5, not 4"),
    ],
)
def test_workers_fill_nodes_and_servers_are_beside_them_or_apart(
    training, servers, setting, nodes, found, monkeypatch
):
    """On nodes of torchrun with four processes each; too few are refused before anything starts."""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "here")
    monkeypatch.setenv("WORLD_SIZE", str(nodes * 4))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    words = ["cluster=torchrun", "data=synthetic", *([setting] if setting else [])]
    cluster = Point.unchecked(composed(words, REPOSITORY)).cluster
    if isinstance(found, list):
        assert cluster.places(training, servers) == found
    else:
        with pytest.raises(SettingError, match=f"^cluster: {found}$"):
            cluster.places(training, servers)
