"""Snapshots of workers with their own weights: the mean of copies made at different times.

Each worker's weights are copied when the run-wide samples of its steps first reach those of the
snapshot.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from paceline.clock.run_spec import RunSpec
from paceline.clock.snapshot import Snapshot
from paceline.clock.virtual.running_mean import RunningMean
from paceline.clock.virtual.shared_state import SharedStates
from paceline.clock.virtual.virtual_worker import VirtualWorker


class _Means(NamedTuple):
    weights: RunningMean
    statistics: RunningMean


class SnapshotMean:
    """Snapshots in the making; one is complete when all workers have reached its samples."""

    def __init__(self, run: RunSpec, states: SharedStates) -> None:
        self.snapshots: list[Snapshot] = []
        self.diverged = False
        self._run, self._states = run, states
        self._num_passed = [0] * run.num_workers  # snapshots, by worker
        self._means: dict[int, _Means] = {}  # by samples

    def add(self, workers: Sequence[VirtualWorker], now: float) -> None:
        """Add the weights of workers that have just finished a step to the snapshots they reach."""
        passing: dict[int, list[VirtualWorker]] = {}
        for worker in workers:
            passed = self._run.passed(self._num_passed[worker.index], worker.next_number)
            self._num_passed[worker.index] += len(passed)
            for samples in passed:
                passing.setdefault(samples, []).append(worker)
        for samples, passed_by in sorted(passing.items()):
            self._add(samples, passed_by)
            if self._means[samples].weights.count == self._run.num_workers:
                self._complete(samples, now)

    def _add(self, samples: int, workers: Sequence[VirtualWorker]) -> None:
        means = self._means.setdefault(samples, _Means(RunningMean(), RunningMean()))
        states = Counter(self._states.of[worker.index] for worker in workers)
        for state, num_workers in states.items():
            means.weights.add(state.scored, num_workers)
        for worker in workers:
            means.statistics.add(worker.statistics.vector)

    def _complete(self, samples: int, now: float) -> None:
        weights, statistics = (mean.value for mean in self._means.pop(samples))
        updates = self._run.updates_at(samples)
        self.snapshots.append(Snapshot(samples, updates, now, weights, statistics))
        self.diverged = not bool(weights.isfinite().all())
