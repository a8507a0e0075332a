"""How a worker of each kind of scheme is wired into Lightning, and what it can tell afterwards."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from pytorch_lightning import Callback, LightningModule, Trainer
from torch import nn

from paceline.engine.snapshot import Snapshot
from paceline.engine.training_clock import TrainingClock
from paceline.measurement.timed_batches import Batches
from paceline.model.learning_rate import LearningRate
from paceline.run.budget import Budget
from paceline.run.point_data import Feed
from paceline.run.quiet import quiet_trainer
from paceline.scheme.accounting import Accounting
from paceline.scheme.rule import AbstractScheme
from paceline.timing.pace import Pace
from paceline.timing.step_times import step_times
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

    def batches(self, feed: Feed, worker: int) -> Batches:
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

    @abstractmethod
    def seen(self, steps: int) -> dict[str, Any]:
        """counted, updates, diverged, late_steps, seconds_communicate, bytes_sent and _received."""


class SynchronousSide(AbstractSide):
    """Lightning's own DDP; for one worker none."""

    def __init__(
        self,
        config: dict[str, Any],
        scheme: AbstractScheme,
        budget: Budget,
        rate: LearningRate,
        clock: TrainingClock,
        device: torch.device,
    ) -> None:
        self.evaluated = evaluated(Accounting(scheme, config["workers"]))
        self.num_batches = budget.num_steps // config["workers"]
        self._workers = config["workers"]
        timeout = config["cluster"]["timeout_seconds"]
        how = (scheme.collective, scheme.compression)
        alone = self._workers == 1
        self._strategy = (
            OneWorkerStrategy(device) if alone else SyncAllReduceStrategy(timeout, *how)
        )
        self._pace = _pace(config)
        self._strategy.prepare(
            workers=self._workers,
            batch_size=config["batch_size"],
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
        config: dict[str, Any],
        scheme: AbstractScheme,
        budget: Budget,
        rate: LearningRate,
        clock: TrainingClock,
        device: torch.device,
    ) -> None:
        accounting = Accounting(scheme, config["workers"])
        self.evaluated = evaluated(accounting)
        own, equal = accounting.own_weights, accounting.equal_steps
        self.num_batches = budget.num_steps // config["workers"] if equal else budget.most_batches
        self._pace = _pace(config)
        kind = OwnWeightsStrategy if own else ParameterServerStrategy
        self._strategy = kind(
            scheme,
            workers=config["workers"],
            batch_size=config["batch_size"],
            num_steps=budget.num_steps,
            snapshot_samples=budget.thresholds,
            learning_rate=rate,
            device=device,
            clock=clock,
            timeout_seconds=config["cluster"]["timeout_seconds"],
            pace=self._pace,
            server_seconds=config["cluster"]["server_seconds"],
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


def _pace(config: dict[str, Any]) -> Pace | None:
    """Of this process; None where its steps take as long as they take."""
    times = step_times(config)
    return Pace(times, dist.get_rank()) if times else None
