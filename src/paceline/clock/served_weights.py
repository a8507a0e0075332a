"""Weights of a server, and the effect of pushes on them, which is the same on the wall and the
virtual clock.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from paceline.clock.flat_optimizer import flat_optimizer
from paceline.clock.reports import ServerReport
from paceline.clock.served_pushes import ServedPushes, Update
from paceline.clock.snapshot import MovingAverage, Snapshot, scored_weights, state_of
from paceline.clock.vector_spec import ServerSpec
from paceline.scheme.rule import AbstractScheme
from paceline.scheme.serving import Release

# parts of a server's pushes that are plain values
_COUNTS = ("_snapshot_samples", "_granted", "num_pushes", "_staleness")


class ServedWeights(ServedPushes):
    """Weights of one server, and the pushes to it, which are applied by the scheme's rule.

    `gradient(worker)`, `statistics(worker)`: content of the worker's last push, valid until its
    answer. `numbers(worker)`: options of its optimizer; None if they do not change. A mean of
    several pushes is applied with the options of the first. `seconds()`: training clock. If a
    snapshot's weights are not finite, the run ends early as diverged.
    """

    def __init__(
        self,
        scheme: AbstractScheme,
        spec: ServerSpec,
        weights: Tensor,
        *,
        gradient: Callable[[int], Tensor],
        statistics: Callable[[int], Tensor],
        seconds: Callable[[], float],
        numbers: Callable[[int], Sequence[float]] | None = None,
    ) -> None:
        super().__init__(scheme, spec.run, spec.server)
        self._numbers = numbers if spec.vectors.num_numbers else None
        self.snapshots: list[Snapshot] = []
        self.weights = weights
        self._gradient, self._statistics, self._seconds = gradient, statistics, seconds
        self._optimizer = flat_optimizer(weights, spec.vectors.segments)
        self._average: MovingAverage | None = None
        self._read: dict[int, Tensor] = {}

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint, when every push is answered or waits."""
        return {
            **self.vectors(),
            "report": vars(self.report),
            "counts": {name: getattr(self, name) for name in _COUNTS},
            "serving": self.serving.state(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from the state of another server with the same part."""
        self.load_vectors(state)
        self.report = ServerReport(**state["report"])
        vars(self).update(state["counts"])
        self.serving.load_state(state["serving"])

    def vectors(self) -> dict[str, Any]:
        """Return that part of the state which does not follow from the order of the pushes."""
        return {
            "weights": self.weights,
            "optimizer": self._optimizer.state(),
            "average": self._average.weights if self._average else None,
            "snapshots": state_of(self.snapshots),
            "read": self._read,
        }

    def load_vectors(self, state: Mapping[str, Any]) -> None:
        self.weights.copy_(state["weights"])
        self._optimizer.load_state(state["optimizer"])
        if state["average"] is not None:
            here = [each.to(self.weights.device) for each in state["average"]]
            self._average = MovingAverage.begun(here, self._run.sample_decay)
        self.snapshots = [Snapshot(**each) for each in state["snapshots"]]
        self._read = {
            worker: each.to(self.weights.device) for worker, each in state["read"].items()
        }

    @property
    def scored(self) -> Tensor:
        """A copy of the weights, and of their moving average if there is one: [1 or 2, n]."""
        return scored_weights(self.weights, self._begun_average())

    def answer(self, worker: int) -> None:
        """Note that the worker gets the present weights."""
        if self._scheme.needs_read:
            self._read[worker] = self.weights.clone()

    def grant(self, worker: int) -> bool:
        self.answer(worker)
        return super().grant(worker)

    def _carry_out(self, release: Release, worker: int) -> tuple[int, ...]:
        answered = super()._carry_out(release, worker)
        if self.update is not None:
            self.apply(self.update)
        return answered

    def apply(self, update: Update) -> None:
        """Apply the mean of pushes, and keep a snapshot if one is due."""
        gradient = self._mean(update.workers)
        average = self._begun_average()
        numbers = self._numbers(update.workers[0]) if self._numbers else None
        self._optimizer.step(gradient, update.factor, numbers)
        if average is not None:
            average.update([self.weights], update.images)
        if update.snapshot_of is not None:
            self._keep_snapshot(update.snapshot_of)

    def _begun_average(self) -> MovingAverage | None:
        if self._average is None:
            self._average = MovingAverage.begun([self.weights], self._run.sample_decay)
        return self._average

    def _mean(self, workers: tuple[int, ...]) -> Tensor:
        """Return the mean of the workers' gradients, with memory for one more vector."""
        gradients = (
            self._scheme.served(
                self._gradient(worker), self.weights, self._read.get(worker, self.weights)
            )
            for worker in workers
        )
        first = next(gradients)
        if len(workers) == 1:
            return first
        total = first.clone()
        for gradient in gradients:
            total += gradient
        return total.div_(len(workers))

    def _keep_snapshot(self, workers: Sequence[int]) -> None:
        """Copy the weights: the only work for evaluation that the training clock counts."""
        mean = torch.stack([self._statistics(worker) for worker in workers]).mean(0)
        counts, seconds = (self.samples, self.report.updates), self._seconds()
        self.snapshots.append(Snapshot(*counts, seconds, self.scored, mean))
        self.report.diverged = not self.snapshots[-1].is_finite()
