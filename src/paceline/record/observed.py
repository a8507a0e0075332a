"""Reports of the processes of a run, and the observations that follow from all reports."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from paceline.clock.reports import (
    ServerReport,
    StrategyReport,
    WorkerReport,
    images_per_second,
)
from paceline.cluster.supervisor import LostWorker
from paceline.data.order import AbstractOrder
from paceline.data.placement import DataMoved
from paceline.model.score import Score
from paceline.record.certificate import Certificate, certificate
from paceline.scheme.rule import AbstractScheme


@dataclass(frozen=True, kw_only=True)
class SnapshotScore(Score):
    """Score of one snapshot of the weights.

    `samples`, `updates`: numbers of samples and updates that led to these weights. `seconds`: time
    of the snapshot on the training clock. `real_seconds`: its time on a real clock.
    `averaged_top1`: top-1 of the moving average of the weights; None if the run has no moving
    average.
    """

    samples: int
    updates: int
    seconds: float
    real_seconds: float
    averaged_top1: float | None


@dataclass
class TrainingReport:
    """Report of one training process: on one worker, or on all workers on the virtual clock.

    `shard`: index of the process within a split worker (one of several processes); the report of
    process 0 stands for the worker. `losses`: for each of `thresholds` [samples], the sum of the
    training losses of the steps since the previous threshold, and the number of these steps.
    `real_step_ends`: real times at which the steps of the process ended [seconds]. `order`: order
    in which the run draws its data. `images_seen` [num_train]: how often each image was in a batch.
    `lr`: learning rate after the warm-up, before the schedule lowers it. `momentum`: None for an
    optimizer without momentum. `test`: score of the last snapshot on the test set; None if another
    process computed it. `joined`, `built`, `training_started`: times at which the process had
    joined the other processes, had built module and data, and drew its first batch [seconds since
    1970]. `moved`: data that moved among workers. `checkpoints`: number of checkpoints written.
    `resumes`: how often the run was resumed. `data_digest`: digest of the content of the data; None
    if it is unknown, or if another process computed it. `optimizer`: name of the class of the
    module's optimizer. `scheduler`: names of the classes of its schedulers of the learning rate;
    "own hooks" if the module sets the rate itself; None if the rate is that of the settings.
    `cautions`: sentences on the module for the user.
    """

    strategy: StrategyReport
    evaluated: str
    images_per_update: int
    num_parameters: int
    lr: float
    momentum: float | None
    thresholds: list[int]
    losses: list[tuple[float, int]]
    real_step_ends: np.ndarray
    order: AbstractOrder
    images_seen: np.ndarray
    scores: list[SnapshotScore]
    test: SnapshotScore | None
    joined: float
    built: float
    training_started: float
    peak_rss_bytes: int = 0
    stopped_seconds: float = 0.0
    moved: DataMoved = field(default_factory=DataMoved)
    shard: int = 0
    checkpoints: int = 0
    resumes: int = 0
    data_digest: str | None = None
    optimizer: str | None = None
    scheduler: str | None = None
    cautions: list[str] = field(default_factory=list[str])


@dataclass(frozen=True)
class LostSteps:
    """A worker that died during the run. `steps`: number of its pushes that reached server 0."""

    worker: int
    steps: int
    reason: str


class Observed:
    """Observations of a point whose run has ended.

    The attribute `training` has one report for each worker (or the single report of a process that
    runs all workers): for a worker that is split into several processes, the report of its first
    process. `shards`: reports of the other processes of split workers; their bytes count for the
    worker. `servers`: a report of each server; modelled servers report inside `training`. `lost`:
    workers that died while the servers continued; their steps are counted from the report of server
    0. A number that was not observed is None, for example the throughput of all workers if one was
    lost. `scheme`, `batch_size`: settings of the point. `warmup_fraction`: share of the steps that
    is left out of the throughput, at the beginning and again at the end. `is_scored`: False if only
    throughput is measured, so that there are no scores.

    `first`: a report from which values are read that are equal in all reports. `steps`: number of
    steps of all workers, including lost ones. `samples`: number of samples whose gradients were
    applied. `updates`: number of updates of server 0, or of the first worker in a run without
    servers. `dropped`: batches whose gradients were not applied, as pairs (worker, number of the
    batch among this worker's batches). `diverged`: True if a process observed weights that are not
    finite.
    """

    def __init__(
        self,
        training: Sequence[TrainingReport],
        servers: Sequence[ServerReport] = (),
        lost: Sequence[LostWorker] = (),
        *,
        scheme: AbstractScheme,
        batch_size: int,
        warmup_fraction: float,
        is_scored: bool = True,
    ) -> None:
        self.training = [each for each in training if each.shard == 0]
        self.shards = [each for each in training if each.shard > 0]
        own = [worker for each in self.training for worker in each.strategy.workers]
        others = [worker for each in self.shards for worker in each.strategy.workers]
        self.workers = [_with_shards(each, others) for each in own] if others else own
        self.servers = [*servers, *(s for each in self.training for s in each.strategy.servers)]
        self.lost = [_lost_steps(each, self.servers[0]) for each in lost]
        self.scheme, self.batch_size = scheme, batch_size
        self._warmup_fraction, self.is_scored = warmup_fraction, is_scored

        self.first = self.training[0]
        self.steps = sum(each.steps for each in (*self.workers, *self.lost))
        self.samples, self.updates = self.steps * batch_size, self.first.strategy.updates
        self.dropped: list[tuple[int, int]] = []
        if self.servers:
            self.samples, self.updates = self.servers[0].samples, self.servers[0].updates
            self.dropped = self.servers[0].dropped_steps
        self.diverged = any(
            part.diverged for part in (*(each.strategy for each in training), *self.servers)
        )

    @cached_property
    def scores(self) -> list[SnapshotScore]:
        """Return the scores of all snapshots, sorted by samples."""
        scores = itertools.chain.from_iterable(each.scores for each in self.training)
        return sorted(scores, key=lambda score: score.samples)

    @property
    def last_score(self) -> SnapshotScore | None:
        return self.scores[-1] if self.scores else None

    @property
    def test(self) -> SnapshotScore | None:
        """Return the score of the last snapshot on the test set, or None."""
        return next((each.test for each in self.training if each.test), None)

    @cached_property
    def train_losses(self) -> dict[int, float]:
        """Return the mean training loss of all workers' steps, by threshold [samples].

        Each mean is over the steps since the previous threshold. Thresholds without a step are left
        out.
        """
        means: dict[int, float] = {}
        for index, threshold in enumerate(self.first.thresholds):
            losses, counts = zip(*(each.losses[index] for each in self.training), strict=True)
            if sum(counts):
                means[threshold] = sum(losses) / sum(counts)
        return means

    @property
    def seconds(self) -> float:
        """Return the time at which the last step of any worker ended on the training clock."""
        return max(_last_end(worker.step_ends) for worker in self.workers)

    @property
    def real_seconds(self) -> float:
        """Return the real time at which the last step of any process ended [seconds]."""
        return max(_last_end(each.real_step_ends) for each in self.training)

    @property
    def training_started(self) -> float:
        """Return the time at which the first worker drew its first batch [seconds since 1970]."""
        return min(each.training_started for each in self.training)

    @property
    def staleness(self) -> np.ndarray:
        """Return the staleness of each push that a server applied [updates]."""
        pushes = itertools.chain.from_iterable(server.applied for server in self.servers)
        return np.array([staleness for _, staleness in pushes])

    @property
    def distinct_samples(self) -> int | None:
        """Return the number of distinct images whose gradients were applied.

        It is None if a worker was lost, since its images were not reported.
        """
        if self.lost:
            return None
        counts = np.sum([each.images_seen for each in self.training], axis=0)
        if self.dropped:
            counts = counts - self.first.order.times_drawn(self.dropped)
        return int((counts > 0).sum())

    @property
    def data_digest(self) -> str | None:
        """Return the digest of the content of the data, or None."""
        return next((each.data_digest for each in self.training if each.data_digest), None)

    @property
    def data_moved(self) -> DataMoved:
        """Return the data that moved among workers: bytes of all, seconds of the slowest one."""
        moved = [each.moved for each in self.training]
        return DataMoved(
            shuffle_bytes=sum(each.shuffle_bytes for each in moved),
            shuffle_seconds=max(each.shuffle_seconds for each in moved),
        )

    @property
    def images_per_second(self) -> float | None:
        """Return the images per second on the training clock; only applied gradients count."""
        return self._throughput(
            [self._applied_step_ends(worker.worker, worker.step_ends) for worker in self.workers]
        )

    @property
    def real_images_per_second(self) -> float | None:
        """Return the images per second on a real clock; only applied gradients count.

        Where one process runs all workers, dropped gradients count as well, because it is not known
        which of its real step times belong to which worker.
        """
        return self._throughput(
            [
                each.real_step_ends
                if len(each.strategy.workers) > 1
                else self._applied_step_ends(each.strategy.workers[0].worker, each.real_step_ends)
                for each in self.training
            ]
        )

    @cached_property
    def certificate(self) -> Certificate:
        count = len(self.workers) + len(self.lost)
        whole = not (self.lost or self.diverged or self.first.resumes)
        return certificate(self.scheme, count, self.workers, self.servers, whole=whole)

    def _throughput(self, step_ends: list[np.ndarray]) -> float | None:
        if self.lost:
            return None
        return images_per_second(step_ends, self.batch_size, self._warmup_fraction)

    def _applied_step_ends(self, worker: int, step_ends: np.ndarray) -> np.ndarray:
        """Return `step_ends` of `worker` without the steps whose gradients were dropped."""
        return np.delete(step_ends, [number for k, number in self.dropped if k == worker])


def _lost_steps(lost: LostWorker, server: ServerReport) -> LostSteps:
    steps = sum(worker == lost.worker for worker, _ in server.pushes)
    reason = f"{lost.reason} (server 0: {dict(server.lost)[lost.worker]})"
    return LostSteps(lost.worker, steps, reason)


def _with_shards(worker: WorkerReport, others: Sequence[WorkerReport]) -> WorkerReport:
    """Return the report of a split worker, with the bytes of all its processes."""
    parts = [worker, *(each for each in others if each.worker == worker.worker)]
    bytes_moved = ("bytes_sent", "bytes_received")
    names = [*bytes_moved, *(f"activation_{name}" for name in bytes_moved)]
    return replace(worker, **{name: sum(getattr(each, name) for each in parts) for name in names})


def _last_end(step_ends: np.ndarray) -> float:
    return float(step_ends[-1]) if len(step_ends) else 0.0
