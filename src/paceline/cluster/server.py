"""A parameter server process: it holds a part of the weights and applies pushes by a scheme's rule.

It imports no Lightning, so that it starts as fast as torch does.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from paceline.cluster.snapshot import Snapshot, send_snapshot
from paceline.cluster.training_clock import TrainingClock
from paceline.exchange.message import receive_json, send_json
from paceline.exchange.process_group import count_workers
from paceline.exchange.push_pull import Header, ServerWire
from paceline.model.learning_rate import LearningRate
from paceline.scheme.scheme import AbstractScheme, Arrival

# A server cannot know a loss scale (16-mixed), and would round its weights at each update (-true).
SERVED_PRECISIONS = ("32-true", "64-true", "bf16-mixed")


@dataclass(frozen=True)
class ServerPlan:
    """What a server must know of the run; worker 0 sends it. Plain numbers and strings, as JSON."""

    server: int
    workers: int
    dtype: str  # of weights and gradients: "float32" or "float64"
    segments: list[dict[str, Any]]  # the shard in order: "num_weights" and SGD's options
    num_statistics: int  # BatchNorm values in front of each push
    batch_size: int
    num_steps: int  # the budget: steps of all workers together
    snapshot_steps: list[int]  # versions at which to keep the weights, ascending
    learning_rate: dict[str, Any] | None  # LearningRate's fields; None: the rate stays

    @property
    def num_weights(self) -> int:
        return sum(segment["num_weights"] for segment in self.segments)


@dataclass
class ServerReport:
    """What a server saw. `pushes`: (worker, staleness) in the order of arrival."""

    server: int
    pushes: list[tuple[int, int]] = field(default_factory=list)
    updates: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    diverged: bool = False


class Server:
    """Serves until every worker has left; no step is granted beyond the budget.

    A snapshot with weights that are not finite ends the run early, as diverged.
    """

    def __init__(self, scheme: AbstractScheme, plan: ServerPlan) -> None:
        self.report = ServerReport(plan.server)
        self.snapshots: list[Snapshot] = []
        self._scheme = scheme
        self._plan = plan
        dtype = getattr(torch, plan.dtype)
        self._wire = ServerWire(plan.num_weights, plan.num_statistics, dtype, plan.workers)
        self._parts = [segment["num_weights"] for segment in plan.segments]
        self._weights = list(self._wire.weights.split(self._parts))
        self._optimizer = _sgd(self._weights, plan.segments)
        self._rate = LearningRate(**plan.learning_rate) if plan.learning_rate else None
        self._granted = 0
        self._pushed: set[int] = set()
        self._clock = TrainingClock()

    def run(self) -> ServerReport:
        dist.recv(self._wire.weights, 0)
        for worker in range(self._plan.workers):
            self._answer(worker)
        count_workers(self._plan.workers, is_worker=False)
        self._clock.start()
        waiting: tuple[Arrival, ...] = ()
        training = self._plan.workers
        while training:
            worker, header = self._wire.receive()
            if not header.proceed:
                training -= 1
                continue
            arrival = Arrival(worker, self.report.updates - header.version)
            self.report.pushes.append((arrival.worker, arrival.staleness))
            self._pushed.add(worker)
            waiting = self._advance((*waiting, arrival))
        self.report.bytes_sent = self._wire.bytes_sent
        self.report.bytes_received = self._wire.bytes_received
        return self.report

    def _advance(self, waiting: tuple[Arrival, ...]) -> tuple[Arrival, ...]:
        """Do what the rule says about these pushes; the ones that still wait."""
        release = self._scheme.released(waiting, self._plan.workers)
        if release is None:
            return waiting
        self._update(release.applied)
        for worker in release.answered:
            self._answer(worker)
        return tuple(arrival for arrival in waiting if arrival.worker not in release.answered)

    def _update(self, workers: tuple[int, ...]) -> None:
        gradients = [self._wire.gradient(worker) for worker in workers]
        gradient = gradients[0] if len(gradients) == 1 else torch.stack(gradients).mean(0)
        for weights, part in zip(self._weights, gradient.split(self._parts), strict=True):
            weights.grad = part
        if self._rate is not None:
            factor = self._rate.factor(self.report.updates * self._images_per_update)
            for group in self._optimizer.param_groups:
                group["lr"] = group["initial_lr"] * factor
        self._optimizer.step()
        self.report.updates += 1
        if self.report.updates in self._plan.snapshot_steps:
            self._keep_snapshot()

    @property
    def _images_per_update(self) -> int:
        return self._scheme.images_per_update(self._plan.batch_size, self._plan.workers)

    def _answer(self, worker: int) -> None:
        granted = self._granted < self._plan.num_steps and not self.report.diverged
        self._granted += granted
        self._wire.answer(worker, Header(self.report.updates, granted))

    def _keep_snapshot(self) -> None:
        """Copies the shard: the only work of evaluation inside the training clock."""
        statistics = [self._wire.statistics(worker) for worker in sorted(self._pushed)]
        snapshot = Snapshot(
            samples=self.report.updates * self._images_per_update,
            updates=self.report.updates,
            seconds=self._clock.seconds(),
            weights=self._wire.weights.clone(),
            statistics=torch.stack(statistics).mean(0),
        )
        self.snapshots.append(snapshot)
        self.report.diverged = not bool(snapshot.weights.isfinite().all())


def _sgd(weights: list[torch.Tensor], segments: list[dict[str, Any]]) -> torch.optim.SGD:
    groups = []
    for part, segment in zip(weights, segments, strict=True):
        options = {name: value for name, value in segment.items() if name != "num_weights"}
        groups.append({"params": [part], "initial_lr": options["lr"], **options})
    return torch.optim.SGD(groups, lr=0.0, fused=True)  # one pass over memory instead of three


def serve(scheme: AbstractScheme) -> ServerReport:
    """Be a server of the joined process group: take the plan, serve, hand out the snapshots.

    Snapshot n goes to worker n modulo workers, in order, so that all of them can evaluate at once.
    """
    plan = ServerPlan(**receive_json(0))
    server = Server(scheme, plan)
    report = server.run()
    for turn, snapshot in enumerate(server.snapshots):
        send_snapshot(snapshot, turn % plan.workers)
    for worker in range(plan.workers):
        send_json(None, worker)
    return report
