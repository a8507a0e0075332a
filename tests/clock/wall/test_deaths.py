"""Processes that die while they train: a worker is done without, a server is not."""

import os
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from torch.testing import assert_close

from paceline.cluster.supervisor import LostWorker, ProcessFailure
from paceline.record.point import Point
from paceline.run.run_point import run_point
from paceline.study.compose import composed
from tests.clock.references import replayed
from tests.tiny import NUM_TRAIN, run_tiny, tiny_point

REPOSITORY = Path(__file__).parents[3]
ASYNC, BOUNDED, SYNC = "async_parameter_server", "stale_synchronous", "sync_allreduce"
BACKED = "sync_parameter_server"
NUM_STEPS = 3 * NUM_TRAIN // 4
LOST = LostWorker(1, "killed by SIGKILL")


def dying(folder, when, *, scheme=ASYNC, workers=2, servers=1, tcp=False):
    return tiny_point(
        scheme,
        workers,
        4,
        **({"scheme__servers": servers} if scheme not in (SYNC, "gossip") else {}),
        model___target_="tests.clock.wall.dying.DyingClassifier",
        model__when=when,
        model__tcp=tcp,
        model__folder=str(folder),
        model__num_steps=NUM_STEPS,
    )


@pytest.mark.parametrize("tcp", [False, True])
@pytest.mark.parametrize("when", ["before", "in a push", "at the end"])
def test_the_other_goes_on_to_the_end_of_the_budget(when, tcp, tmp_path):
    """Replaying the pushes that the server took gives the weights: no more and no less is in them.

    At the end: the other worker has come for a step when the last one is given back.
    """
    config = dying(tmp_path, when, tcp=tcp)
    seen, weights = run_tiny(config, tmp_path)
    assert_budget_is_used_up(seen)
    assert_close(weights, replayed(config, seen), rtol=1e-12, atol=1e-14)


def test_snapshots_are_dealt_out_among_those_who_live(tmp_path):
    seen, _ = run_tiny(dying(tmp_path, "before", workers=3), tmp_path)
    assert_budget_is_used_up(seen)
    assert [[score.updates for score in each.scores] for each in seen.training] == [
        [NUM_STEPS // 3, NUM_STEPS],
        [2 * NUM_STEPS // 3],
    ]


def assert_budget_is_used_up(seen, steps=2):
    (server,) = seen.servers
    assert seen.lost == [LOST]
    taken = Counter(worker for worker, _ in server.pushes)
    assert taken == Counter({1: steps} | {each.worker: each.steps for each in seen.workers})
    assert taken.total() == server.updates == NUM_STEPS
    assert [worker for worker, _ in server.lost] == [1]


def test_a_push_that_one_of_two_servers_took_holds_up_neither(tmp_path):
    seen, _ = run_tiny(dying(tmp_path, "in a push", servers=2), tmp_path)
    assert seen.lost == [LOST]
    assert [server.updates for server in seen.servers] == [NUM_STEPS, NUM_STEPS - 1]
    assert [score.updates for score in seen.training[0].scores] == [12, 24, 36]


def test_a_run_without_a_worker_is_recorded_as_finished_and_says_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outcome = run_point(
        Point.of(recorded(tmp_path, "scheme=async_parameter_server", when="in a push"))
    )
    result = outcome.result
    assert result["status"] == "finished"
    why = "killed by SIGKILL (server 0: its connection ended in the middle of a push)"
    assert result["lost_workers"] == [{"worker": 1, "steps": 2, "reason": why}]
    assert result["reason"] == f"worker 1 was lost after 2 steps: {why}"
    assert (result["workers"], result["samples"], result["updates"]) == (2, 1280, 40)
    assert result["distinct_samples"] is result["images_per_second"] is None
    curve = (outcome.folder / "curve.csv").read_text().splitlines()
    assert len(curve) == 1 + 4
    assert curve[-1].startswith("1280,40,")


def test_a_server_that_dies_ends_the_run_with_one_line_and_leaves_no_process(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = recorded(tmp_path, "scheme=async_parameter_server", "scheme.servers=2", when="never")
    dying_servers = {"_target_": "tests.clock.wall.dying.DyingServers", "servers": 2}
    point = Point.of(config.replaced(scheme=dying_servers))
    before = family()
    began = time.monotonic()
    result = run_point(point).result
    assert (result["status"], result["reason"]) == ("failed", "server 1: killed by SIGKILL")
    assert time.monotonic() - began < 30
    assert family() <= before


@pytest.mark.parametrize("when", ["before", "in a push", "held", "at the end"])
def test_a_backup_worker_takes_the_place_of_a_dead_one(when, tmp_path):
    """Which dies in its first step; held: when it has pushed, and the update waits for another."""
    config = dying(tmp_path, when, scheme=BACKED, workers=3)
    config["scheme"]["backup_workers"] = 1
    config["model"] |= {"turn": 0, "num_steps": NUM_STEPS // 2}
    seen, weights = run_tiny(config, tmp_path)
    (first, third), (server,) = seen.workers, seen.servers
    assert seen.lost == [LOST]
    assert (first.steps, third.steps) == (NUM_STEPS // 2, NUM_STEPS // 2)
    assert (server.updates, len(server.dropped_steps)) == (NUM_STEPS // 2, when == "held")
    assert [score.updates for score in seen.training[0].scores] == [6, 18]
    used = [push for push in server.pushes if push[0] != 1]
    assert (len(used), len(server.pushes)) == (NUM_STEPS, NUM_STEPS + (when == "held"))
    expected = replayed(config, seen._replace(servers=[replace(server, pushes=used)]))
    assert_close(weights, expected, rtol=1e-12, atol=1e-14)


def test_as_many_die_as_there_are_backup_workers_and_no_more(tmp_path):
    config = dying(tmp_path, "before", scheme=BACKED, workers=3)
    config["scheme"]["backup_workers"] = 1
    config["model"]["_target_"] = "tests.clock.wall.dying.TheOthersDie"
    with pytest.raises(ProcessFailure, match=r"^worker [12]: killed by SIGKILL$"):
        run_tiny(config, tmp_path)


def test_groups_of_one_do_without_each_other(tmp_path):
    config = dying(tmp_path, "before", scheme="mixed")
    config["scheme"]["group_size"] = 1
    seen, _ = run_tiny(config, tmp_path)
    assert_budget_is_used_up(seen)


@pytest.mark.parametrize(
    ("scheme", "kind", "who"),
    [
        # workers that wait for others
        *[
            (scheme, "DyingClassifier", "1")
            for scheme in (SYNC, BACKED, "mixed", "sync_then_async", "elastic_averaging", "gossip")
        ],
        # one that answers others
        ("mixed", "FirstDies", "0"),
        ("gossip", "FirstDies", "0"),
        (ASYNC, "AllDie", "[01]"),
    ],
)
def test_a_run_ends_with_a_worker_that_it_cannot_do_without(scheme, kind, who, tmp_path):
    config = dying(tmp_path, "before", scheme=scheme)
    config["model"]["_target_"] = f"tests.clock.wall.dying.{kind}"
    with pytest.raises(ProcessFailure, match=rf"^worker {who}: killed by SIGKILL$"):
        run_tiny(config, tmp_path)


@pytest.mark.parametrize("bound", [0, 2])
@pytest.mark.parametrize("when", ["before", "in a push", "held"])
def test_nobody_waits_for_a_dead_worker_to_catch_up(bound, when, tmp_path):
    config = dying(tmp_path, when, scheme=BOUNDED, workers=3)
    config["scheme"]["bound"] = bound
    seen, _ = run_tiny(config, tmp_path)
    assert_budget_is_used_up(seen, steps=3 + bound if when == "held" else 2)


def recorded(folder, *settings, when):
    """40 steps of 32 images on two workers, by the project's own settings."""
    config = composed(
        (
            "data=synthetic",
            "data.num_train=640",
            "data.num_validation=64",
            "data.num_test=64",
            "data.image_shape=[1,12,12]",
            "workers=2",
            "batch_size=32",
            "training.samples=1280",
            "measurement.evaluations=4",
            "measurement.mlflow.tracking_uri=null",
            "cluster.accelerator=cpu",
            *settings,
        ),
        REPOSITORY,
    )
    about = {"when": when, "tcp": True, "folder": str(folder), "num_steps": 40}
    model = {"_target_": "tests.clock.wall.dying.DyingClassifier", **about}
    return config.replaced(model={**config.values["model"], **model})


def family():
    """Processes of this one that run; those that serve all tests are among them."""
    children = psutil.Process(os.getpid()).children(recursive=True)
    return {child.pid for child in children if child.status() != psutil.STATUS_ZOMBIE}
