"""Nodes on this machine: real network namespaces, links of a given rate, and faults of them."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from benchmarks.exchange_turns import Asked, measure_exchanges
from paceline.clock.run_spec import RunSpec
from paceline.cluster import namespaces
from paceline.cluster.namespaces import shaped_network
from paceline.cluster.shaped_nodes import RECORD, at_half_time
from paceline.errors import SettingError
from paceline.exchange.process_group import join, leave, this_node
from paceline.record.point import Point
from paceline.run.run_point import run_point
from paceline.study.compose import composed
from tests.ends import wait_until
from tests.launching import launch
from tests.tiny import REPOSITORY, point_of, run_tiny, tiny_point

BANDWIDTH = 1e6


@pytest.fixture(scope="module")
def permitted():
    try:
        with shaped_network(1, BANDWIDTH):
            pass
    except SettingError as error:
        pytest.skip(f"no network namespaces here: {error}")


def names(process=None):
    """The namespaces of a process, by default of this one."""
    return list(Path("/run/netns").glob(f"paceline-{process or os.getpid()}-*"))


def send(num_bytes):
    """Seconds in which rank 0 has the bytes of both others, and this process's node."""
    join(60, "cpu")
    vector = torch.zeros(num_bytes, dtype=torch.uint8)
    dist.barrier()
    began = time.monotonic()
    if dist.get_rank():
        dist.send(vector, 0)
    else:
        for sender in (1, 2):
            dist.recv(vector, sender)
    seconds = time.monotonic() - began
    leave()
    return seconds, this_node()


@pytest.mark.usefixtures("permitted")
def test_messages_of_two_nodes_share_what_the_third_takes_in(tmp_path):
    """No bucket lets more than its rate pass, but for its burst and one packet."""
    with shaped_network(3, BANDWIDTH) as network:
        found = launch(
            f"{send.__module__}:{send.__name__}",
            (200_000,),
            workers=3,
            servers=0,
            log_folder=tmp_path,
            address=network.address,
            namespaces=network.namespaces,
        )
    seconds, nodes = zip(*found, strict=True)
    assert seconds[0] > 0.95 * 2 * 200_000 / BANDWIDTH
    assert len(set(nodes)) == 3
    assert names() == []


@pytest.mark.usefixtures("permitted")
def test_collectives_use_both_directions_of_a_link_at_once():
    """One direction at a time would take twice as long; frames and filling take a tenth more.

    What else runs on the machine only adds to a turn: the least of five is that of the link.
    """
    length, link = 500_001, {"latency": 0, "bandwidth": 1e7}
    point = point_of(tiny_point("sync_allreduce", 2, 4, cluster="shaped_nodes", cluster__link=link))
    names = ("ring", "multicolor", "parameter_server")
    found = measure_exchanges(point.cluster, 2, [Asked(name, length) for name in names], 5)
    for name, exchanged in zip(names, found, strict=True):
        assert 0.9 < min(exchanged.seconds) / (4 * length / link["bandwidth"]) < 1.7, name


@pytest.mark.usefixtures("permitted")
@pytest.mark.parametrize("scheme", ["sync_allreduce", "sync_parameter_server"])
def test_training_between_nodes_equals_that_on_one_machine(scheme, tmp_path):
    found = []
    for cluster in ("local", "shaped_nodes"):
        folder = tmp_path / cluster
        folder.mkdir()
        seen, weights = run_tiny(tiny_point(scheme, 3, 4, cluster=cluster), folder)
        found.append((weights, [worker.bytes_sent for worker in seen.workers]))
    (weights, sent), (of_nodes, sent_between) = found
    for name, value in weights.items():  # pushes are added in the order of arrival
        torch.testing.assert_close(of_nodes[name], value, rtol=1e-12, atol=1e-12)
    assert sent == sent_between
    assert names() == []


@pytest.mark.usefixtures("permitted")
def test_nodes_of_a_killed_process_are_removed_by_the_next(monkeypatch):
    ended = subprocess.Popen(["true"])
    ended.wait()
    monkeypatch.setattr(namespaces.os, "getpid", lambda: ended.pid)
    network = shaped_network(2, BANDWIDTH)
    network.__enter__()
    assert len(names(ended.pid)) == 2
    monkeypatch.undo()
    with shaped_network(1, BANDWIDTH):
        assert (len(names()), names(ended.pid)) == (1, [])
    assert names() == []


def test_without_the_right_or_the_programs_it_is_refused(monkeypatch):
    config = tiny_point("sync_allreduce", 2, 4, cluster="shaped_nodes")
    monkeypatch.setattr(namespaces.shutil, "which", lambda _: "/sbin/x")
    monkeypatch.setattr(namespaces.os, "geteuid", lambda: 1000)
    with pytest.raises(SettingError, match=r"^cluster: .* need root$"):
        point_of(config)
    monkeypatch.setattr(namespaces.shutil, "which", lambda _: None)
    with pytest.raises(SettingError, match=r"^cluster: there is no ip"):
        point_of(config)


HEADER = "samples,seconds,share,train_loss,images_per_second\n"


def test_it_strikes_once_and_not_before_half_of_the_images(tmp_path):
    progress, strikes = tmp_path / "progress.csv", []
    struck = tmp_path / RECORD
    with at_half_time(progress, lambda: strikes.append(progress.read_text())):
        progress.write_text(HEADER + "48,1,0.4800,1,\n52,2,0.52")  # of which the end is missing
        before = time.monotonic()
        with progress.open("a") as file:
            file.write("00,1,\n")
        wait_until(struck.is_file)
    assert len(strikes) == 1
    assert "52,2,0.5200,1,\n" in strikes[0]
    told = json.loads(struck.read_text())
    assert told["samples"] == 52
    assert before <= told["at"] <= time.monotonic()


def test_a_run_that_was_over_before_is_not_taken_for_one_with_a_fault(tmp_path):
    progress = tmp_path / "progress.csv"
    progress.write_text(HEADER + "48,1,0.4800,1,\n")
    with (
        pytest.raises(SettingError, match=r"^cluster\.fault: the run ended before it was"),
        at_half_time(progress, lambda: None),
    ):
        pass
    with pytest.raises(ZeroDivisionError), at_half_time(progress, lambda: None):
        raise ZeroDivisionError  # of the run itself


@pytest.mark.usefixtures("permitted")
def test_all_processes_of_a_node_are_killed_and_its_link_alone_is_shaped():
    def pids(name):
        command = ["ip", "netns", "pids", name]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()

    with shaped_network(2, 1e6) as network:
        names = [each.rpartition("/")[2] for each in network.namespaces]
        placed = [*names, names[1]]
        sleeping = [subprocess.Popen(["ip", "netns", "exec", n, "sleep", "60"]) for n in placed]
        for each, name in zip(sleeping, placed, strict=True):
            wait_until(lambda each=each, name=name: str(each.pid) in pids(name))
        network.kill(0)
        assert sleeping[0].wait() == -signal.SIGKILL
        network.shape(1, 1e5)
        assert [each.poll() for each in sleeping[1:]] == [None, None]
        network.kill(1)
        assert [each.wait() for each in sleeping[1:]] == [-signal.SIGKILL] * 2
        untouched, *slowed = (
            rate("-n", names[0], dev="eth0"),
            rate("-n", names[1], dev="eth0"),
            rate(dev=f"pl{os.getpid()}n1"),
        )
    assert slowed == [pytest.approx(untouched / 10, rel=1e-3)] * 2


def rate(*namespace, dev):
    command = ["tc", "-json", *namespace, "qdisc", "show", "dev", dev]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return json.loads(shown)[0]["options"]["rate"]


@pytest.mark.usefixtures("permitted")
@pytest.mark.parametrize("checkpoint_seconds", ["null", "0.3"])
def test_a_run_with_a_killed_worker_ends_or_goes_on_from_its_checkpoint(
    checkpoint_seconds, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    data = "data=synthetic data.num_train=640 data.num_validation=64 data.num_test=64"
    cluster = "cluster=shaped_nodes cluster.step_seconds=0.05 cluster.fault=worker_killed"
    run = "workers=2 batch_size=8 training.samples=960 measurement.mlflow.tracking_uri=null"
    own = ["data.image_shape=[1,12,12]", f"training.checkpoint_seconds={checkpoint_seconds}"]
    config = composed([*f"{data} {cluster} {run}".split(), *own], REPOSITORY)
    result = run_point(Point.of(config), in_sweep=True).result
    if checkpoint_seconds == "null":
        assert (result["status"], result["reason"]) == ("failed", "worker 1: killed by SIGKILL")
    else:
        assert (result["status"], result["samples"], result["resumes"]) == ("finished", 960, 1)
    assert 480 <= result["fault_samples"] < 960
    assert 0 <= result["fault_seconds"] < 30


def test_slow_from_half_of_its_own_steps(monkeypatch):
    settings = {"cluster__fault": "slow_worker", "cluster__step_seconds": 0.5}
    point = point_of(tiny_point("sync_allreduce", 2, 4, cluster="shaped_nodes", **settings))
    times = point.cluster.paced_times(RunSpec(2, batch_size=4, num_steps=8))
    assert [times.seconds(0, step) for step in range(4)] == [0.5, 0.5, 2.5, 2.5]
    assert times.seconds(1, 3) == 0.5


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("link.latency", {"latency": 0.001, "bandwidth": 1e6}, ""),
        ("link.bandwidth", {"latency": 0, "bandwidth": None}, ""),
        ("link.unevenness", {"latency": 0, "bandwidth": 1e6, "unevenness": 0.5}, ""),
        ("fault", "server_killed", "server_killed, but the scheme has no server"),
        ("fault", "slow_worker", "slow_worker needs paced steps"),
        ("fault", "flood", "should be 'none', 'worker_killed'"),
    ],
)
def test_what_cannot_be_emulated_or_happen_is_refused(setting, value, message, monkeypatch):
    monkeypatch.setattr(namespaces.os, "geteuid", lambda: 0)
    settings = {f"cluster__{setting.partition('.')[0]}": value}
    with pytest.raises(SettingError, match=rf"^cluster\.{setting}: {message}"):
        point_of(tiny_point("sync_allreduce", 2, 4, cluster="shaped_nodes", **settings))
