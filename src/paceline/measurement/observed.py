"""Brings together what the processes of a point have reported."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from paceline.cluster.supervisor import LostWorker
from paceline.engine.reports import ServerReport
from paceline.measurement.certificate import Certificate, certificate
from paceline.measurement.images_seen import num_distinct
from paceline.measurement.throughput import images_per_second
from paceline.measurement.training_report import SnapshotScore, TrainingReport


@dataclass(frozen=True)
class LostSteps:
    """A worker that died on the way. `steps`: of its pushes, those that server 0 received."""

    worker: int
    steps: int
    reason: str


class Observed:
    """A point whose processes came to their end, as they saw it.

    `training`: a report of each training process. `servers`: of each server process; modelled
    servers are in the reports of training. `lost`: workers that died while the servers went on;
    the servers tell their steps. What nobody saw is None: images/s of all workers, for instance.
    `workers`, `batch_size`, `seed`: the settings of the point. `warmup_fraction`: share of the
    steps that the throughput leaves out.
    """

    def __init__(
        self,
        training: Sequence[TrainingReport],
        servers: Sequence[ServerReport] = (),
        lost: Sequence[LostWorker] = (),
        *,
        workers: int,
        batch_size: int,
        seed: int,
        warmup_fraction: float,
    ) -> None:
        self.training = list(training)
        self.workers = [worker for each in training for worker in each.strategy.workers]
        self.servers = [*servers, *(s for each in training for s in each.strategy.servers)]
        self.lost = [_lost_steps(each, self.servers[0]) for each in lost]
        self.batch_size = batch_size
        self._batches = {"workers": workers, "batch_size": batch_size, "seed": seed}
        self._warmup_fraction = warmup_fraction

    @property
    def first(self) -> TrainingReport:
        """The report that stands for all where all training processes agree."""
        return self.training[0]

    @cached_property
    def scores(self) -> list[SnapshotScore]:
        """All snapshots of the run in the order of their samples."""
        scores = itertools.chain.from_iterable(each.scores for each in self.training)
        return sorted(scores, key=lambda score: score.samples)

    @property
    def last_score(self) -> SnapshotScore | None:
        """The snapshot at the end of the run."""
        return self.scores[-1] if self.scores else None

    @property
    def test(self) -> SnapshotScore | None:
        """The last snapshot, scored on the test set; None where the run ended early."""
        return next((each.test for each in self.training if each.test), None)

    @cached_property
    def train_losses(self) -> dict[int, float]:
        """Mean training loss of all workers' steps up to each threshold [samples].

        Thresholds without a step are left out.
        """
        means = {}
        for place, threshold in enumerate(self.first.thresholds):
            parts = [each.losses[place] for each in self.training]
            count = sum(count for _, count in parts)
            if count:
                means[threshold] = sum(loss for loss, _ in parts) / count
        return means

    @property
    def steps(self) -> int:
        """Steps of all workers, lost ones included."""
        return sum(each.steps for each in (*self.workers, *self.lost))

    @property
    def samples(self) -> int:
        """Samples behind the weights."""
        return self.servers[0].samples if self.servers else self.steps * self.batch_size

    @property
    def updates(self) -> int:
        """Updates of the weights: at server 0, or at the first worker where there is none."""
        return self.servers[0].updates if self.servers else self.first.strategy.updates

    @property
    def seconds(self) -> float:
        """Seconds of the training clock until the last worker ended its last step."""
        return max(_last(worker.step_ends) for worker in self.workers)

    @property
    def real_seconds(self) -> float:
        """Real seconds of training until the last step ended."""
        return max(_last(each.real_step_ends) for each in self.training)

    @property
    def dropped(self) -> list[tuple[int, int]]:
        """The batches whose gradients were not applied: worker, and number among its own."""
        return self.servers[0].dropped_steps if self.servers else []

    @property
    def pushes(self) -> np.ndarray:
        """Staleness of each push that a server took [updates]."""
        pushes = itertools.chain.from_iterable(server.pushes for server in self.servers)
        return np.array([staleness for _, staleness in pushes])

    @property
    def distinct_samples(self) -> int | None:
        """Number of images in the batches whose gradients were applied."""
        if self.lost:
            return None
        return num_distinct(
            [each.images_seen for each in self.training], self.dropped, **self._batches
        )

    @property
    def images_per_second(self) -> float | None:
        """Throughput by the training clock, of images whose gradients were applied."""
        return self._throughput(
            [self._applied(worker.worker, worker.step_ends) for worker in self.workers]
        )

    @property
    def real_images_per_second(self) -> float | None:
        """Throughput by a real clock; dropped gradients count where one process runs all workers,
        since its steps are not told apart.
        """
        return self._throughput(
            [
                each.real_step_ends
                if len(each.strategy.workers) > 1
                else self._applied(each.strategy.workers[0].worker, each.real_step_ends)
                for each in self.training
            ]
        )

    @property
    def training_started(self) -> float:
        """When the first worker asked for its first batch [seconds since 1970]."""
        return min(each.training_started for each in self.training)

    @cached_property
    def certificate(self) -> Certificate:
        """What the run may be called."""
        count = len(self.workers) + len(self.lost)
        return certificate(self.first.claim, count, self.workers, self.servers)

    @property
    def diverged(self) -> bool:
        """Whether weights were found that are not finite."""
        parts = (*(each.strategy for each in self.training), *self.servers)
        return any(part.diverged for part in parts)

    def _throughput(self, step_ends: list[np.ndarray]) -> float | None:
        if self.lost:
            return None
        return images_per_second(step_ends, self.batch_size, self._warmup_fraction)

    def _applied(self, worker: int, step_ends: np.ndarray) -> np.ndarray:
        """Leave out the steps of `worker` whose gradients were dropped."""
        return np.delete(step_ends, [number for k, number in self.dropped if k == worker])


def _lost_steps(lost: LostWorker, server: ServerReport) -> LostSteps:
    steps = sum(worker == lost.worker for worker, _ in server.pushes)
    reason = f"{lost.reason} (server 0: {dict(server.lost)[lost.worker]})"
    return LostSteps(lost.worker, steps, reason)


def _last(step_ends: np.ndarray) -> float:
    return float(step_ends[-1]) if len(step_ends) else 0.0
