"""Weights of a server, and the effect of pushes on them, which is the same on the wall and the
virtual clock.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from paceline.clock.flat_optimizer import flat_optimizer
from paceline.clock.reports import ServerReport
from paceline.clock.run_spec import ServerSpec
from paceline.clock.snapshot import MovingAverage, Snapshot, scored_weights, state_of
from paceline.scheme.counts import Counts
from paceline.scheme.rule import AbstractScheme
from paceline.scheme.serving import Arrival, Release

# parts of a server's state that are plain values, or tensors that nobody else holds
_COUNTS = ("_snapshot_samples", "_granted", "num_pushes", "_staleness", "_read")


class ServedWeights:
    """Weights of one server, to which pushes are applied by the scheme's rule.

    A grant is an answer that allows its worker another step; no more steps are granted than the run
    has. `gradient(worker)`, `statistics(worker)`: content of the worker's last push, valid until
    its answer. `numbers(worker)`: options of its optimizer; None if they do not change. A mean of
    several pushes is applied with the options of the first. `seconds()`: training clock.
    `num_pushes`: pushes that have arrived, by worker. If a snapshot's weights are not finite, the
    run ends early as diverged.
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
        self._numbers = numbers if spec.vectors.num_numbers else None
        self.report = ServerReport(spec.server)
        self.snapshots: list[Snapshot] = []
        self.weights = weights
        self._scheme, self._run = scheme, spec.run
        self._counts = Counts(scheme, spec.run.num_workers)
        self._serving = scheme.serving(spec.run.num_workers)
        self._gradient, self._statistics, self._seconds = gradient, statistics, seconds
        self._optimizer = flat_optimizer(weights, spec.vectors.segments)
        self._average: MovingAverage | None = None
        self._snapshot_samples = list(spec.run.snapshot_samples)
        self._granted = 0
        self.num_pushes: Counter[int] = Counter()  # of each worker
        self._staleness: dict[int, int] = {}  # of each worker's last push
        self._read: dict[int, Tensor] = {}

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint, when every push is answered or waits."""
        return {
            "weights": self.weights,
            "optimizer": self._optimizer.state(),
            "average": self._average.weights if self._average else None,
            "report": vars(self.report),
            "snapshots": state_of(self.snapshots),
            "counts": {name: getattr(self, name) for name in _COUNTS},
            "serving": self._serving.state(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from the state of another server with the same part."""
        self.weights.copy_(state["weights"])
        self._optimizer.load_state(state["optimizer"])
        if state["average"] is not None:
            here = [each.to(self.weights.device) for each in state["average"]]
            self._average = self._run.average_of(here)
        self.report = ServerReport(**state["report"])
        self.snapshots = [Snapshot(**each) for each in state["snapshots"]]
        vars(self).update(state["counts"])
        self._serving.load_state(state["serving"])

    @property
    def samples(self) -> int:
        """Samples of all workers that have been applied to the weights."""
        return self.report.samples

    @property
    def scored(self) -> Tensor:
        """A copy of the weights, and of their moving average if there is one: [1 or 2, n]."""
        return scored_weights(self.weights, self._begun_average())

    def pushes_before_a_stop(self) -> int:
        return self._serving.pushes_before_a_stop()

    def grant(self, worker: int) -> bool:
        """Grant another step to a worker that is answered now; return False at the run's end."""
        if self._scheme.needs_read:
            self._read[worker] = self.weights.clone()
        budget = self._run.num_steps
        granted = not self.report.diverged and (budget is None or self._granted < budget)
        self._granted += granted * self._counts.steps_per_push
        return granted

    def lose(self, worker: int, reason: str, *, stepping: bool) -> tuple[int, ...]:
        """Remove a worker that died; return the workers to answer now. `stepping`: the worker had
        not finished a granted step, which returns to the budget.
        """
        self.report.lost.append((worker, reason))
        self._granted -= stepping * self._counts.steps_per_push
        self._staleness.pop(worker, None)  # its statistics would grow old
        return self.leave(worker)

    def arrive(self, worker: int, version: int) -> tuple[int, ...]:
        """Take a push of `worker`, computed on `version`; return the workers to answer now."""
        staleness, budget = self.report.updates - version, self._run.num_steps
        progress = self.samples / (budget * self._run.batch_size) if budget else 0.0
        self.report.pushes.append((worker, staleness))
        self._staleness[worker] = staleness
        self.num_pushes[worker] += 1
        release = self._serving.arrive(Arrival(worker, staleness, progress))
        return self._carry_out(release, worker)

    def leave(self, worker: int) -> tuple[int, ...]:
        """Remove a worker that sends no more pushes; return the workers to answer now."""
        return self._carry_out(self._serving.leave(worker), worker)

    def _carry_out(self, release: Release, worker: int) -> tuple[int, ...]:
        if release.applied:
            self._update(release.applied)
        self._granted -= len(release.dropped) * self._counts.steps_per_push
        self.report.dropped_steps += [(w, self.num_pushes[w] - 1) for w in release.dropped]
        self.report.held += sum(each != worker for each in release.answered)
        return release.answered

    def _update(self, workers: tuple[int, ...]) -> None:
        gradient = self._mean(workers)
        images = len(workers) * self._counts.steps_per_push * self._run.batch_size
        average = self._begun_average()
        rate = self._run.rate_factor(self.samples, images)
        stalest = max(self._staleness[worker] for worker in workers)
        numbers = self._numbers(workers[0]) if self._numbers else None
        self._optimizer.step(gradient, rate * self._scheme.step_factor(stalest), numbers)
        if average is not None:
            average.update([self.weights], images)
        self.report.updates += 1
        self.report.samples += images
        if self._snapshot_samples and self.samples >= self._snapshot_samples[0]:
            self._keep_snapshot()

    def _begun_average(self) -> MovingAverage | None:
        if self._average is None:
            self._average = self._run.average_of([self.weights])
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

    def _keep_snapshot(self) -> None:
        """Copy the weights: the only work for evaluation that the training clock counts."""
        self._snapshot_samples.pop(0)
        statistics = [self._statistics(worker) for worker in sorted(self._staleness)]
        mean, seconds = torch.stack(statistics).mean(0), self._seconds()
        snapshot = Snapshot(self.samples, self.report.updates, seconds, self.scored, mean)
        self.snapshots.append(snapshot)
        self.report.diverged = not snapshot.is_finite()
