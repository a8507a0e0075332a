"""Faults that strike real processes and links in the middle of a run."""

import json
import os
import signal
import subprocess
import time

import pytest

from paceline.clock.run_spec import RunSpec
from paceline.cluster.namespaces import shaped_network
from paceline.cluster.shaped_nodes import RECORD, at_half_time
from paceline.errors import SettingError
from paceline.record.point import Point
from paceline.run.run_point import run_point
from paceline.study.compose import composed
from tests.cluster.test_shaped_nodes import permitted  # noqa: F401 (a fixture)
from tests.tiny import REPOSITORY, point_of, tiny_point

HEADER = "samples,seconds,share,train_loss,images_per_second\n"


def test_it_strikes_once_and_not_before_half_of_the_images(tmp_path):
    progress, strikes = tmp_path / "progress.csv", []
    struck = tmp_path / RECORD
    with at_half_time(progress, lambda: strikes.append(progress.read_text())):
        progress.write_text(HEADER + "48,1,0.4800,1,\n52,2,0.52")  # of which the end is missing
        before = time.monotonic()
        with progress.open("a") as file:
            file.write("00,1,\n")
        while not struck.is_file():
            time.sleep(0.01)
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
    with shaped_network(2, 1e6) as network:
        names = [each.rpartition("/")[2] for each in network.namespaces]
        sleeping = [
            subprocess.Popen(["ip", "netns", "exec", name, "sleep", "60"])
            for name in (*names, names[1])
        ]
        while any(
            str(each.pid) not in pids(name) for name, each in zip(names, sleeping, strict=False)
        ):
            time.sleep(0.01)
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


def pids(name):
    found = subprocess.run(
        ["ip", "netns", "pids", name], capture_output=True, text=True, check=True
    )
    return found.stdout.split()


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
    config = composed(
        (
            "data=synthetic",
            "data.num_train=640",
            "data.num_validation=64",
            "data.num_test=64",
            "data.image_shape=[1,12,12]",
            "cluster=shaped_nodes",
            "cluster.step_seconds=0.05",
            "cluster.fault=worker_killed",
            "workers=2",
            "batch_size=8",
            "training.samples=960",
            f"training.checkpoint_seconds={checkpoint_seconds}",
            "measurement.mlflow.tracking_uri=null",
        ),
        REPOSITORY,
    )
    result = run_point(Point.of(config), in_sweep=True).result
    if checkpoint_seconds == "null":
        assert (result["status"], result["reason"]) == ("failed", "worker 1: killed by SIGKILL")
    else:
        assert (result["status"], result["samples"], result["resumes"]) == ("finished", 960, 1)
    assert 480 <= result["fault_samples"] < 960
    assert 0 <= result["fault_seconds"] < 30


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cluster__fault": "server_killed"}, "server_killed, but the scheme has no server"),
        ({"cluster__fault": "slow_worker"}, "slow_worker needs paced steps"),
        ({"cluster__fault": "flood"}, "should be 'none', 'worker_killed'"),
    ],
)
def test_a_fault_that_cannot_happen_is_refused(settings, message):
    with pytest.raises(SettingError, match=rf"^cluster\.fault: {message}"):
        point_of(tiny_point("sync_allreduce", 2, 4, cluster="shaped_nodes", **settings))


def test_slow_from_half_of_its_own_steps(monkeypatch):
    settings = {"cluster__fault": "slow_worker", "cluster__step_seconds": 0.5}
    point = point_of(tiny_point("sync_allreduce", 2, 4, cluster="shaped_nodes", **settings))
    times = point.cluster.paced_times(RunSpec(2, batch_size=4, num_steps=8))
    assert [times.seconds(0, step) for step in range(4)] == [0.5, 0.5, 2.5, 2.5]
    assert times.seconds(1, 3) == 0.5
