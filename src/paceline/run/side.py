"""How a worker of each kind of scheme is wired into Lightning, and what it can tell afterwards."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from pytorch_lightning import Callback, LightningModule, Trainer
from torch import nn

from paceline.engine.reports import StrategyReport, WorkerReport
from paceline.engine.snapshot import Snapshot
from paceline.engine.training_clock import TrainingClock
from paceline.measurement.timed_batches import Batches
from paceline.model.learning_rate import LearningRate
from paceline.record.point import Point
from paceline.run.budget import Budget
from paceline.run.point_data import PointData
from paceline.run.quiet import quiet_trainer
from paceline.scheme.accounting import Accounting
from paceline.scheme.rule import AbstractScheme
from paceline.timing.pace import Pace
from paceline.wall_clock.ddp import OneWorkerStrategy, SyncAllReduceStrategy
from paceline.wall_clock.own_weights import OwnWeightsStrategy
from paceline.wall_clock.parameter_server import ParameterServerStrategy


class AbstractSide(ABC):
    """A worker's Trainer, and what is known when it has ended."""

    num_batches: int  # that this process may draw at most
    live: bool = True  # whether its seconds are real, so that progress can be logged by them
    evaluated: str

    def trainer(self, observer: Callback, **options: Any) -> Trainer:
        """`options`: of Lightning's Trainer."""
        return quiet_trainer(callbacks=[observer], **self._distribution(), **options)

    @abstractmethod
    def _distribution(self) -> dict[str, Any]:
        """The Trainer's strategy, devices and plugins."""

    def batches(self, feed: PointData, worker: int) -> Batches:
        """What this process trains on."""
        return feed.train(worker, self.num_batches)

    def draws(self, steps: int, worker: int) -> Iterable[tuple[int, int]]:
        """Worker and number of each batch that this process trained on, in `steps` steps."""
        return ((worker, turn) for turn in range(steps))

    def real_seconds(self, snapshots: list[Snapshot]) -> list[float]:
        """Of real training time, at each snapshot."""
        return [snapshot.seconds for snapshot in snapshots]

    @abstractmethod
    def samples(self) -> int:
        """Over all workers, as far as this worker knows."""

    @abstractmethod
    def held(self, module: LightningModule) -> list[nn.Parameter]:
        """The weights, in the order of a snapshot's."""

    @abstractmethod
    def finish(self) -> list[Snapshot]:
        """The snapshots that are this worker's to evaluate, when training has ended."""

    def report(
        self, step_ends: np.ndarray, seconds_data: float, module: LightningModule
    ) -> StrategyReport:
        seen = self.seen(len(step_ends))
        worker = WorkerReport(
            worker=dist.get_rank(),
            steps=len(step_ends),
            step_ends=step_ends,
            weights_digest=digest(module),
            seconds_data=seconds_data,
            seconds_communicating=seen["seconds_communicate"],
            bytes_sent=seen["bytes_sent"],
            bytes_received=seen["bytes_received"],
            late_steps=seen["late_steps"],
            step_numbers=seen.get("numbers", ()),
            averages=seen.get("averages", ()),
        )
        return StrategyReport(seen["counted"], seen["updates"], seen["diverged"], [worker])

    @abstractmethod
    def seen(self, steps: int) -> dict[str, Any]:
        """counted, updates, diverged, late_steps, seconds_communicate, bytes_sent and _received."""


class SynchronousSide(AbstractSide):
    """Lightning's own DDP; for one worker none."""

    def __init__(
        self,
        point: Point,
        scheme: AbstractScheme,
        budget: Budget,
        rate: LearningRate,
        clock: TrainingClock,
        device: torch.device,
    ) -> None:
        self.evaluated = evaluated(Accounting(scheme, point.workers))
        self.num_batches = budget.num_steps // point.workers
        self._workers = point.workers
        timeout = point.cluster.timeout_seconds
        how = (scheme.collective, scheme.compression)
        alone = self._workers == 1
        self._strategy = (
            OneWorkerStrategy(device) if alone else SyncAllReduceStrategy(timeout, *how)
        )
        self._pace = _pace(point)
        self._strategy.prepare(
            workers=self._workers,
            batch_size=point.batch_size,
            snapshot_samples=budget.thresholds,
            learning_rate=rate,
            clock=clock,
            timeout_seconds=timeout,
            pace=self._pace,
        )

    def _distribution(self) -> dict[str, Any]:
        plugins = [LightningEnvironment()] if self._workers == 1 else []
        return {"strategy": self._strategy, "devices": self._workers, "plugins": plugins}

    def samples(self) -> int:
        return self._strategy.samples

    def held(self, module: LightningModule) -> list[nn.Parameter]:
        return list(module.parameters())

    def finish(self) -> list[Snapshot]:
        return self._strategy.snapshots

    def seen(self, steps: int) -> dict[str, Any]:
        sent, received = self._strategy.bytes_exchanged
        return {
            "counted": self._strategy.counted,
            "updates": self._strategy.updates,
            "diverged": self._strategy.diverged,
            "late_steps": self._pace.late_steps if self._pace else 0,
            "seconds_communicate": self._strategy.seconds_exposed * steps,
            "bytes_sent": sent,
            "bytes_received": received,
        }


class RuleSide(AbstractSide):
    """A worker that drives the scheme's rule itself."""

    def __init__(
        self,
        point: Point,
        scheme: AbstractScheme,
        budget: Budget,
        rate: LearningRate,
        clock: TrainingClock,
        device: torch.device,
    ) -> None:
        accounting = Accounting(scheme, point.workers)
        self.evaluated = evaluated(accounting)
        own, equal = accounting.own_weights, accounting.equal_steps
        self.num_batches = budget.num_steps // point.workers if equal else budget.most_batches
        self._pace = _pace(point)
        kind = OwnWeightsStrategy if own else ParameterServerStrategy
        self._strategy = kind(
            scheme,
            workers=point.workers,
            batch_size=point.batch_size,
            num_steps=budget.num_steps,
            snapshot_samples=budget.thresholds,
            learning_rate=rate,
            device=device,
            clock=clock,
            timeout_seconds=point.cluster.timeout_seconds,
            pace=self._pace,
            server_seconds=point.cluster.server_seconds,
        )

    def _distribution(self) -> dict[str, Any]:
        return {"strategy": self._strategy, "devices": 1, "plugins": [LightningEnvironment()]}

    def samples(self) -> int:
        return self._strategy.samples

    def held(self, module: LightningModule) -> list[nn.Parameter]:
        return self._strategy.held

    def finish(self) -> list[Snapshot]:
        return self._strategy.finish()

    def seen(self, steps: int) -> dict[str, Any]:
        sent, received = self._strategy.bytes_exchanged
        return {
            "counted": self._strategy.counted,
            "updates": self._strategy.updates,
            "diverged": False,  # snapshots say
            "late_steps": self._pace.late_steps if self._pace else 0,
            "seconds_communicate": self._strategy.seconds_communicating,
            "bytes_sent": sent,
            "bytes_received": received,
            "averages": self._strategy.averages,
            "numbers": self._strategy.numbers,
        }


def evaluated(accounting: Accounting) -> str:
    """Which weights and statistics a snapshot holds, in words."""
    if accounting.scheme.carried_out_by_ddp:
        return "weights shared by all workers; BatchNorm statistics: mean over workers"
    if accounting.scheme.servers:
        weights = "the servers' center" if accounting.own_weights else "weights at the servers"
        return f"{weights}; BatchNorm statistics: mean over workers' latest"
    return "mean over workers' weights; BatchNorm statistics: mean over workers"


def _pace(point: Point) -> Pace | None:
    """Of this process; None where its steps take as long as they take."""
    times = point.cluster.step_times(point.batch_size, point.seed)
    return Pace(times, dist.get_rank()) if times else None


def digest(module: LightningModule) -> str:
    made = hashlib.sha256()
    for weight in module.parameters():
        made.update(weight.detach().cpu().float().numpy().tobytes())
    return made.hexdigest()
