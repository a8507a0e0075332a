"""One process that stands for all workers and servers of a point, on the virtual clock."""

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from pytorch_lightning import LightningModule
from torch import nn

from paceline.engine.reports import StrategyReport, WorkerReport
from paceline.engine.snapshot import Snapshot
from paceline.engine.training_clock import TrainingClock
from paceline.model.learning_rate import LearningRate
from paceline.record.point import Point
from paceline.run.budget import Budget
from paceline.run.point_data import PointData
from paceline.run.side import AbstractSide, evaluated
from paceline.scheme.accounting import Accounting
from paceline.scheme.rule import AbstractScheme
from paceline.virtual_clock.batches import VirtualBatches
from paceline.virtual_clock.strategy import VirtualCluster
from paceline.virtual_clock.worker import VirtualWorker


class VirtualSide(AbstractSide):
    live = False

    def __init__(
        self,
        point: Point,
        scheme: AbstractScheme,
        budget: Budget,
        rate: LearningRate,
        clock: TrainingClock,
        device: torch.device,
    ) -> None:
        self.num_batches = budget.most_batches
        self.evaluated = evaluated(Accounting(scheme, point.workers))
        self._batch_size = point.batch_size
        self._strategy = VirtualCluster(
            scheme,
            workers=point.workers,
            step_times=point.cluster.step_times(point.batch_size, point.seed),
            profile=point.cluster.profile,
            num_steps=budget.num_steps,
            snapshot_samples=budget.thresholds,
            learning_rate=rate,
            seed=point.seed,
            device=device,
            real_seconds=clock.seconds,
        )

    def _distribution(self) -> dict[str, Any]:
        return {"strategy": self._strategy, "devices": 1, "plugins": [LightningEnvironment()]}

    def batches(self, feed: PointData, worker: int) -> VirtualBatches:
        return self._strategy.batches(feed.batch, self._batch_size, self.num_batches)

    def draws(self, steps: int, worker: int) -> Iterable[tuple[int, int]]:
        return ((each.index, turn) for each in self._workers for turn in range(each.finished))

    def real_seconds(self, snapshots: list[Snapshot]) -> list[float]:
        return self._strategy.snapshots_at

    def samples(self) -> int:
        return self._strategy.clock.holder.samples

    def held(self, module: LightningModule) -> list[nn.Parameter]:
        return self._strategy.held

    def finish(self) -> list[Snapshot]:
        return self._strategy.clock.holder.snapshots

    def seen(self, steps: int) -> dict[str, Any]:
        return {}

    def report(
        self, step_ends: np.ndarray, seconds_data: float, module: LightningModule
    ) -> StrategyReport:
        clock = self._strategy.clock
        return StrategyReport(
            counted=sum(worker.finished > 0 for worker in self._workers),
            updates=clock.holder.updates,
            diverged=clock.holder.diverged,
            workers=[_report_of(worker) for worker in self._workers],
            servers=[each.report for each in clock.servers.served] if clock.servers else [],
        )

    @property
    def _workers(self) -> list[VirtualWorker]:
        return self._strategy.clock.workers


def _report_of(worker: VirtualWorker) -> WorkerReport:
    return WorkerReport(
        worker=worker.index,
        steps=worker.finished,
        step_ends=np.array(worker.step_ends),
        weights_digest=_digest(worker),
        seconds_communicating=worker.seconds_communicating,
        bytes_sent=worker.bytes_sent,
        bytes_received=worker.bytes_received,
        step_numbers=worker.numbers,
        averages=worker.averages,
        timeline=worker.timeline or (),
    )


def _digest(worker: VirtualWorker) -> str:
    """Of the weights that the worker ended with; all hold the same where they meet."""
    weights = worker.weights
    content = b"" if weights is None else weights.vector.detach().cpu().float().numpy().tobytes()
    return hashlib.sha256(content).hexdigest()
