"""Snapshots of workers that hold weights of their own: the mean, each as it was after its n-th
step."""

from collections import Counter
from collections.abc import Sequence

from paceline.cluster.run_plan import RunPlan
from paceline.cluster.snapshot import Snapshot
from paceline.cluster.virtual.replicas import Replicas, RunningMean
from paceline.cluster.virtual.worker import VirtualWorker


class Gathering:
    """Workers come to a snapshot at different times; it is complete when all have come."""

    def __init__(self, plan: RunPlan) -> None:
        self.snapshots: list[Snapshot] = []
        self.diverged = False
        self._plan = plan
        self._steps = {s // (plan.workers * plan.batch_size) for s in plan.snapshot_samples}
        self._means: dict[int, tuple[RunningMean, RunningMean]] = {}

    def add(self, workers: Sequence[VirtualWorker], replicas: Replicas, now: float) -> None:
        """Those that have just finished a step."""
        for step in {worker.finished for worker in workers} & self._steps:
            here = [worker for worker in workers if worker.finished == step]
            means = self._means.setdefault(step, (RunningMean(), RunningMean()))
            for replica, count in Counter(replicas.of[worker.index] for worker in here).items():
                means[0].add(replica.weights.vector, count)
            for worker in here:
                means[1].add(worker.statistics.vector)
            if means[0].count == self._plan.workers:
                self._complete(step, now)

    def _complete(self, step: int, now: float) -> None:
        weights, statistics = (mean.value for mean in self._means.pop(step))
        samples = self._plan.samples_at(step)
        self.snapshots.append(Snapshot(samples, step, now, weights, statistics))
        self.diverged = not bool(weights.isfinite().all())
