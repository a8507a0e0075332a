"""A server's part of the weights, and what pushes do to it: on either clock."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from paceline.cluster.flat_sgd import FlatSGD
from paceline.cluster.snapshot import Snapshot
from paceline.model.learning_rate import LearningRate
from paceline.scheme.scheme import AbstractScheme, Arrival

# A server cannot know a loss scale (16-mixed), and would round its weights at each update (-true).
SERVED_PRECISIONS = ("32-true", "64-true", "bf16-mixed")


@dataclass(frozen=True)
class ServerPlan:
    """What a server must know of the run. Plain numbers and strings, as JSON."""

    server: int
    workers: int
    dtype: str  # of weights and gradients: "float32" or "float64"
    segments: list[Any]  # the shard in order, Segment each
    num_statistics: int  # BatchNorm values in front of each push
    batch_size: int
    num_steps: int | None  # the budget: steps of all workers together; None: no end
    snapshot_steps: list[int]  # versions at which to keep the weights, ascending
    learning_rate: dict[str, Any] | None  # LearningRate's fields; None: the rate stays
    seconds: float = 0  # that a push takes at least, on the wall clock

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
    lost: list[tuple[int, str]] = field(default_factory=list)  # workers, and what was seen of it


class ServedWeights:
    """Applies pushes by the scheme's rule; no step is granted beyond the budget.

    `gradient(worker)`, `statistics(worker)`: of its last push, as long as it waits.
    `seconds()`: the training clock. A snapshot with weights that are not finite ends the run early,
    as diverged.
    """

    def __init__(
        self,
        scheme: AbstractScheme,
        plan: ServerPlan,
        weights: Tensor,
        *,
        gradient: Callable[[int], Tensor],
        statistics: Callable[[int], Tensor],
        seconds: Callable[[], float],
    ) -> None:
        self.report = ServerReport(plan.server)
        self.snapshots: list[Snapshot] = []
        self.weights = weights
        self._scheme, self._plan = scheme, plan
        self._gradient, self._statistics, self._seconds = gradient, statistics, seconds
        self._sgd = FlatSGD(weights, plan.segments)
        self._rate = LearningRate(**plan.learning_rate) if plan.learning_rate else None
        self._images_per_update = scheme.images_per_update(plan.batch_size, plan.workers)
        self._snapshot_steps = frozenset(plan.snapshot_steps)
        self._granted = 0
        self._pushed: set[int] = set()
        self._waiting: tuple[Arrival, ...] = ()

    def grant(self) -> bool:
        """Whether the worker that is answered now may take another step."""
        budget = self._plan.num_steps
        granted = not self.report.diverged and (budget is None or self._granted < budget)
        self._granted += granted
        return granted

    def lose(self, worker: int, reason: str, *, stepping: bool) -> None:
        """`worker` is gone; `stepping`: with a step that was granted to it and never came."""
        self.report.lost.append((worker, reason))
        self._granted -= stepping
        self._pushed.discard(worker)  # its statistics would grow old

    def arrive(self, worker: int, version: int) -> tuple[int, ...]:
        """A push of `worker`, computed on `version`, is here; the workers to answer now."""
        arrival = Arrival(worker, self.report.updates - version)
        self.report.pushes.append((arrival.worker, arrival.staleness))
        self._pushed.add(worker)
        waiting = (*self._waiting, arrival)
        release = self._scheme.released(waiting, self._plan.workers)
        answered = release.answered if release else ()
        if release:
            self._update(release.applied)
        self._waiting = tuple(arrival for arrival in waiting if arrival.worker not in answered)
        return answered

    def _update(self, workers: tuple[int, ...]) -> None:
        gradients = [self._gradient(worker) for worker in workers]
        gradient = gradients[0] if len(gradients) == 1 else torch.stack(gradients).mean(0)
        samples = self.report.updates * self._images_per_update
        self._sgd.step(gradient, self._rate.factor(samples) if self._rate else 1.0)
        self.report.updates += 1
        if self.report.updates in self._snapshot_steps:
            self._keep_snapshot()

    def _keep_snapshot(self) -> None:
        """Copies the shard: the only work of evaluation inside the training clock."""
        statistics = [self._statistics(worker) for worker in sorted(self._pushed)]
        snapshot = Snapshot(
            samples=self.report.updates * self._images_per_update,
            updates=self.report.updates,
            seconds=self._seconds(),
            weights=self.weights.clone(),
            statistics=torch.stack(statistics).mean(0),
        )
        self.snapshots.append(snapshot)
        self.report.diverged = not bool(snapshot.weights.isfinite().all())
