"""Processes that die while they train: a worker is done without, a server is not."""

import os
import signal
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch.distributed as dist
from torch.testing import assert_close

from paceline.cluster.supervisor import LostWorker, ProcessFailure, Task
from paceline.exchange.wire import worker_wire
from paceline.exchange.wire.connection import Header, pack
from paceline.record.point import Point
from paceline.run.run_point import run_point
from paceline.scheme.rule import AbstractServedScheme
from paceline.scheme.serving import AbstractServing, Arrival, AtOnce, Release
from paceline.study.compose import composed
from tests.classifiers import ActingClassifier
from tests.clock.references import replayed
from tests.tiny import NUM_TRAIN, REPOSITORY, point_of, run_tiny, tiny_point

DYING, TURN = 1, 2  # the worker, and the number of its steps before


def _added(content: bytearray, more: bytes) -> int:
    content += more
    return len(more)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class DyingClassifier(ActingClassifier):
    """Worker 1 dies in a step, in the moment `when`; `tcp`: on another wire than it would.

    `when` may be ranks, such as "0 1": these die in the same step. `num_steps`: of all workers that
    do not wait, for the moment "at the end". `turn`: its steps before.
    """

    def __init__(
        self,
        network: Any,
        optimizer: Any,
        when: str,
        tcp: bool,
        folder: str,
        num_steps: int,
        turn: int = TURN,
    ) -> None:
        super().__init__(network, optimizer)
        self._when, self._num_steps, self._turn = when, num_steps, turn
        self._came = Path(folder) / "worker 1 has come to its last step"
        self._sign = Path(folder) / "the others have taken all other steps"
        self._dying = Path(folder) / "the process that dies while it waits"
        if tcp:
            worker_wire.this_node = lambda: "another node"

    def before_batch(self, batch: Any, batch_idx: int) -> None:
        if self._when[0].isdigit():
            if batch_idx == self._turn and str(dist.get_rank()) in self._when:
                die()
        elif dist.get_rank() != DYING:
            if batch_idx == self._turn:
                _wait_for(self._came)  # else a slow machine leaves it no step
            if batch_idx == self._turn and self._when == "held":
                self._let_it_die()
            if batch_idx == self._num_steps - self._turn - 2:  # one is left, beside worker 1's last
                self._sign.touch()
        elif batch_idx == self._turn:
            self._came.touch()
            moments = {
                "before": die,
                "in a push": self._patch,
                "held": self._die_later,
                "at the end": self._wait,
            }
            moments.get(self._when, lambda: None)()

    def _patch(self) -> None:
        """The push of this step goes out in part: of two servers, to the first alone."""
        strategy: Any = self.trainer.strategy
        wire = strategy.push.wire
        wire.push_pull = lambda: self._push_in_part(wire)

    def _push_in_part(self, wire: worker_wire.WorkerWire) -> None:
        if len(wire.versions) == 2:
            wire._ends[0].push(wire.versions[0])
        else:
            end, content = wire._ends[0], bytearray()
            end._packed[:] = pack(Header(wire.versions[0], True))
            keeps = SimpleNamespace(sendmsg=lambda each: _added(content, b"".join(each)))
            end._whole_push.begin_again().send(keeps)
            wire.gradient[: len(wire.gradient) // 2] = 100
            end._connection.sendall(content[: 8 if end.shared else len(content) // 2])
        die()

    def _die_later(self) -> None:
        """Its push of this step is answered when the others have come as far."""
        self._dying.write_text(str(os.getpid()))
        threading.Timer(0.3, die).start()

    def _let_it_die(self) -> None:
        while not self._dying.exists() or psutil.pid_exists(int(self._dying.read_text() or 1)):
            time.sleep(0.01)

    def _wait(self) -> None:
        _wait_for(self._sign)
        time.sleep(0.3)  # for the other to come for a step that only this one can leave to it
        die()


def _wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.01)


class DyingServers(AbstractServedScheme):
    """Asynchronous; the last server dies when its fifth push has come."""

    def __init__(self, servers: int) -> None:
        self.servers = servers

    def serving(self, num_workers: int) -> AbstractServing:
        return DiesAtTheFifth()


class DiesAtTheFifth(AbstractServing):
    pushes = 0

    def arrive(self, arrival: Arrival) -> Release:
        self.pushes += 1
        if self.pushes == 5 and dist.get_rank() == dist.get_world_size() - 1:
            die()
        return AtOnce().arrive(arrival)


class SilentClassifier(ActingClassifier):
    """In its third step worker 1 is stopped, or hangs. `how`: stop or hang."""

    def __init__(self, network: Any, optimizer: Any, how: str, folder: str) -> None:
        super().__init__(network, optimizer)
        self._how = how
        self._sign = Path(folder) / "silent"

    def before_batch(self, batch: Any, batch_idx: int) -> None:
        if dist.get_rank() != DYING and batch_idx == 2:
            _wait_for(self._sign)  # else a slow machine leaves the other no step
        elif batch_idx == 2:
            self._sign.touch()
            if self._how == "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(600)


ASYNC, BOUNDED, SYNC = "async_parameter_server", "stale_synchronous", "sync_allreduce"
BACKED = "sync_parameter_server"
NUM_STEPS = 3 * NUM_TRAIN // 4
LOST = LostWorker(1, "killed by SIGKILL")


def dying(folder, when, *, scheme=ASYNC, workers=2, tcp=False, **settings):
    config = tiny_point(scheme, workers, 4, model___target_=f"{__name__}.DyingClassifier")
    config["model"] |= {"when": when, "tcp": tcp, "folder": str(folder), "num_steps": NUM_STEPS}
    config["scheme"] |= settings
    return config


@pytest.mark.parametrize(
    ("when", "tcp"),
    [("before", False), ("in a push", False), ("in a push", True), ("at the end", True)],
)
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
    dying_servers = {"_target_": f"{__name__}.DyingServers", "servers": 2}
    point = Point.of(config.replaced(scheme=dying_servers))
    before = family()
    result = run_point(point).result
    assert (result["status"], result["reason"]) == ("failed", "server 1: killed by SIGKILL")
    assert family() <= before


@pytest.mark.parametrize("when", ["before", "in a push", "held", "at the end"])
def test_a_backup_worker_takes_the_place_of_a_dead_one(when, tmp_path):
    """Which dies in its first step; held: when it has pushed, and the update waits for another."""
    config = dying(tmp_path, when, scheme=BACKED, workers=3, servers=1, backup_workers=1)
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


def test_groups_of_one_do_without_each_other(tmp_path):
    config = dying(tmp_path, "before", scheme="mixed", servers=1, group_size=1)
    assert_budget_is_used_up(run_tiny(config, tmp_path)[0])


@pytest.mark.parametrize(
    ("scheme", "when"),
    [
        # workers that wait for others
        *((scheme, "before") for scheme in (SYNC, BACKED, "mixed", "sync_then_async")),
        ("elastic_averaging", "before"),
        ("gossip", "before"),
        # one that answers others
        ("mixed", "0"),
        ("gossip", "0"),
        (ASYNC, "0 1"),
        ("one backup worker of three", "1 2"),
    ],
)
def test_a_run_ends_with_a_worker_that_it_cannot_do_without(scheme, when, tmp_path):
    settings = {"scheme": scheme}
    if " " in scheme:
        settings = {"scheme": BACKED, "workers": 3, "backup_workers": 1}
    who = "1" if when == "before" else f"[{when}]"
    with pytest.raises(ProcessFailure, match=rf"^worker {who}: killed by SIGKILL$"):
        run_tiny(dying(tmp_path, when, **settings), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheme", "how", "reason"),
    [
        (SYNC, "hang", "silent for 6 s in a step of its own"),
        ("local_sgd", "hang", "silent for 6 s in a step of its own"),
        (ASYNC, "stop", "silent for 6 s: stopped, or hung"),
    ],
)
def test_a_worker_that_falls_silent_is_as_a_dead_one(scheme, how, reason, tmp_path):
    """How long a silence may be: test_supervisor, by a made clock. Who waits is not silent."""
    module = {"_target_": f"{__name__}.SilentClassifier", "how": how, "folder": str(tmp_path)}
    settings = {"training__epochs": 40, "cluster__timeout_seconds": 6}
    config = tiny_point(scheme, 2, 4, **settings)
    config["model"] |= module
    point = point_of(config)
    target, log = "tests.unyielding:run", tmp_path / "log"
    task = Task(target, (point, tmp_path), *point.num_processes, log, timeout_seconds=6)
    if scheme == ASYNC:
        assert LostWorker(1, reason) in point.cluster.run(task)
    else:
        with pytest.raises(ProcessFailure, match=f"^worker 1: {reason}$") as failure:
            point.cluster.run(task)
        assert failure.value.environment


@pytest.mark.parametrize(
    ("bound", "when"), [(0, "before"), (0, "held"), (2, "in a push"), (2, "held")]
)
def test_nobody_waits_for_a_dead_worker_to_catch_up(bound, when, tmp_path):
    config = dying(tmp_path, when, scheme=BOUNDED, workers=3, servers=1, bound=bound)
    seen, _ = run_tiny(config, tmp_path)
    assert_budget_is_used_up(seen, steps=3 + bound if when == "held" else 2)


def recorded(folder, *settings, when):
    """40 steps of 32 images on two workers, by the project's own settings."""
    data = "data=synthetic data.num_train=640 data.num_validation=64 data.num_test=64"
    run = "workers=2 batch_size=32 training.samples=1280 cluster.accelerator=cpu"
    measured = "measurement.evaluations=4 measurement.mlflow.tracking_uri=null"
    words = [*f"{data} {run} {measured}".split(), "data.image_shape=[1,12,12]", *settings]
    config = composed(words, REPOSITORY)
    about = {"when": when, "tcp": True, "folder": str(folder), "num_steps": 40}
    model = {"_target_": f"{__name__}.DyingClassifier", **about}
    return config.replaced(model={**config.values["model"], **model})


def family():
    """Processes of this one that run; those that serve all tests are among them."""
    children = psutil.Process(os.getpid()).children(recursive=True)
    return {child.pid for child in children if child.status() != psutil.STATUS_ZOMBIE}
