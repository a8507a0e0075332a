"""A server's part of the weights, and what pushes do to it: on either clock."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from paceline.engine.flat_sgd import FlatSGD
from paceline.engine.reports import ServerReport
from paceline.engine.snapshot import Snapshot
from paceline.model.learning_rate import LearningRate
from paceline.scheme.accounting import Accounting
from paceline.scheme.rule import AbstractScheme
from paceline.scheme.serving import Arrival, Release

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
    snapshot_samples: list[int]  # behind the weights when they are kept, ascending
    learning_rate: dict[str, Any] | None  # LearningRate's fields; None: the rate stays
    seconds: float = 0  # that a push takes at least, on the wall clock

    @property
    def num_weights(self) -> int:
        return sum(segment["num_weights"] for segment in self.segments)


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
        self._accounting = Accounting(scheme, plan.workers)
        self._serving = scheme.serving(plan.workers)
        self._gradient, self._statistics, self._seconds = gradient, statistics, seconds
        self._sgd = FlatSGD(weights, plan.segments)
        self._rate = LearningRate(**plan.learning_rate) if plan.learning_rate else None
        self._snapshot_samples = list(plan.snapshot_samples)
        self._granted = 0
        self._num_pushes: Counter[int] = Counter()  # of each worker
        self._staleness: dict[int, int] = {}  # of each worker's last push
        self._read: dict[int, Tensor] = {}

    @property
    def samples(self) -> int:
        """Behind the weights, over all workers."""
        return self.report.samples

    def grant(self, worker: int) -> bool:
        """The worker is answered now: whether it may take another step."""
        if self._accounting.needs_read:
            self._read[worker] = self.weights.clone()
        budget = self._plan.num_steps
        granted = not self.report.diverged and (budget is None or self._granted < budget)
        self._granted += granted * self._accounting.steps_per_push
        return granted

    def lose(self, worker: int, reason: str, *, stepping: bool) -> tuple[int, ...]:
        """`worker` is gone; `stepping`: with a step that was granted to it and never came. The
        workers to answer now.
        """
        self.report.lost.append((worker, reason))
        self._granted -= stepping * self._accounting.steps_per_push
        self._staleness.pop(worker, None)  # its statistics would grow old
        return self.leave(worker)

    def arrive(self, worker: int, version: int) -> tuple[int, ...]:
        """A push of `worker`, computed on `version`, is here; the workers to answer now."""
        arrival = Arrival(worker, self.report.updates - version, self._progress)
        self.report.pushes.append((arrival.worker, arrival.staleness))
        self._staleness[worker] = arrival.staleness
        self._num_pushes[worker] += 1
        return self._carry_out(self._serving.arrive(arrival), worker)

    def leave(self, worker: int) -> tuple[int, ...]:
        """The worker sends no more; the workers to answer now."""
        return self._carry_out(self._serving.leave(worker), worker)

    @property
    def _progress(self) -> float:
        budget = self._plan.num_steps
        return self.samples / (budget * self._plan.batch_size) if budget else 0.0

    def _carry_out(self, release: Release, worker: int) -> tuple[int, ...]:
        if release.applied:
            self._update(release.applied)
        self._granted -= len(release.dropped) * self._accounting.steps_per_push
        self.report.dropped += len(release.dropped)
        self.report.dropped_steps += [(w, self._num_pushes[w] - 1) for w in release.dropped]
        self.report.held += sum(each != worker for each in release.answered)
        return release.answered

    def _update(self, workers: tuple[int, ...]) -> None:
        gradient = self._mean(workers)
        images = len(workers) * self._accounting.steps_per_push * self._plan.batch_size
        self._sgd.step(gradient, self._rate.factor(self.samples, images) if self._rate else 1.0)
        self.report.updates += 1
        self.report.samples += images
        if self._snapshot_samples and self.samples >= self._snapshot_samples[0]:
            self._keep_snapshot()

    def _mean(self, workers: tuple[int, ...]) -> Tensor:
        """One vector more, however many workers."""
        first, *others = workers
        if not others:
            return self._served(first)
        total = self._served(first).clone()
        for worker in others:
            total += self._served(worker)
        return total.div_(len(workers))

    def _served(self, worker: int) -> Tensor:
        read = self._read.get(worker, self.weights)
        pushed, staleness = self._gradient(worker), self._staleness[worker]
        return self._scheme.served(pushed, staleness, self.weights, read)

    def _keep_snapshot(self) -> None:
        """Copies the shard: the only work of evaluation inside the training clock."""
        self._snapshot_samples.pop(0)
        statistics = [self._statistics(worker) for worker in sorted(self._staleness)]
        snapshot = Snapshot(
            samples=self.samples,
            updates=self.report.updates,
            seconds=self._seconds(),
            weights=self.weights.clone(),
            statistics=torch.stack(statistics).mean(0),
        )
        self.snapshots.append(snapshot)
        self.report.diverged = not bool(snapshot.weights.isfinite().all())
