"""Snapshots of workers that hold weights of their own: the mean, each as it was when it first had
so many samples behind it, over all workers."""

from collections import Counter
from collections.abc import Sequence

from paceline.engine.run_spec import RunPlan
from paceline.engine.snapshot import Snapshot
from paceline.virtual_clock.replicas import Replicas, RunningMean
from paceline.virtual_clock.worker import VirtualWorker


class Gathering:
    """Workers come to a snapshot at different times; it is complete when all have come."""

    def __init__(self, plan: RunPlan) -> None:
        self.snapshots: list[Snapshot] = []
        self.diverged = False
        self._plan = plan
        self._passed = [0] * plan.workers  # of the snapshots, by each worker
        self._means: dict[int, tuple[RunningMean, RunningMean]] = {}

    def add(self, workers: Sequence[VirtualWorker], replicas: Replicas, now: float) -> None:
        """Those that have just finished a step."""
        passing: dict[int, list[VirtualWorker]] = {}
        for worker in workers:
            passed = self._plan.passed(self._passed[worker.index], worker.number)
            self._passed[worker.index] += len(passed)
            for samples in passed:
                passing.setdefault(samples, []).append(worker)
        for samples, here in sorted(passing.items()):
            means = self._means.setdefault(samples, (RunningMean(), RunningMean()))
            for replica, count in Counter(replicas.of[worker.index] for worker in here).items():
                means[0].add(replica.weights.vector, count)
            for worker in here:
                means[1].add(worker.statistics.vector)
            if means[0].count == self._plan.workers:
                self._complete(samples, now)

    def _complete(self, samples: int, now: float) -> None:
        weights, statistics = (mean.value for mean in self._means.pop(samples))
        updates = self._plan.updates_at(samples)
        self.snapshots.append(Snapshot(samples, updates, now, weights, statistics))
        self.diverged = not bool(weights.isfinite().all())
