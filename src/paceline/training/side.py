"""How a worker of each kind of scheme is wired into Lightning, and what it can tell afterwards."""

from abc import ABC, abstractmethod
from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.plugins.environments import LightningEnvironment
from pytorch_lightning.strategies import SingleDeviceStrategy
from torch import nn

from paceline.cluster.parameter_server import ParameterServerStrategy
from paceline.cluster.snapshot import Snapshot
from paceline.cluster.sync_allreduce import (
    SynchronousProgress,
    synchronous_strategy,
    without_sigterm_broadcast,
)
from paceline.cluster.training_clock import TrainingClock
from paceline.measurement.exposed_communication import ExposedCommunication
from paceline.measurement.snapshot_keeper import SnapshotKeeper
from paceline.model.learning_rate import LearningRate
from paceline.scheme.scheme import AbstractScheme
from paceline.training.budget import Budget


class AbstractSide(ABC):
    """A worker's Trainer, and what is known when it has ended."""

    num_batches: int  # that this worker may draw at most
    evaluated: str

    @abstractmethod
    def trainer(self, callbacks: list[Callback], **options: Any) -> Trainer: ...

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
        """counted, updates, diverged, seconds_communicate, bytes_sent, bytes_received."""


class SynchronousSide(AbstractSide):
    """Lightning's own DDP, or no strategy for one worker."""

    evaluated = "weights shared by all workers; BatchNorm statistics: mean over workers"

    def __init__(
        self,
        config: dict[str, Any],
        budget: Budget,
        rate: LearningRate,
        clock: TrainingClock,
        device: torch.device,
    ) -> None:
        self.num_batches = budget.updates
        self._workers = config["workers"]
        self._device = device
        self._timeout_seconds = config["cluster"]["timeout_seconds"]
        self._progress = SynchronousProgress(self._workers, budget.images_per_update, rate)
        self._keeper = SnapshotKeeper(self._progress, budget.snapshots, clock)
        self._communication = ExposedCommunication()

    def trainer(self, callbacks: list[Callback], **options: Any) -> Trainer:
        ours = [self._progress, self._keeper, self._communication]
        if self._workers == 1:
            trainer = Trainer(
                strategy=SingleDeviceStrategy(self._device),
                plugins=[LightningEnvironment()],
                devices=1,
                callbacks=[*ours, *callbacks],
                **options,
            )
        else:
            trainer = Trainer(
                strategy=synchronous_strategy(self._timeout_seconds),
                devices=self._workers,
                callbacks=[*ours, *callbacks],
                **options,
            )
        return without_sigterm_broadcast(trainer)

    def samples(self) -> int:
        return self._progress.samples

    def held(self, module: LightningModule) -> list[nn.Parameter]:
        return list(module.parameters())

    def finish(self) -> list[Snapshot]:
        return self._keeper.snapshots

    def seen(self, steps: int) -> dict[str, Any]:
        sent = self._communication.bytes_per_step * steps
        return {
            "counted": self._progress.counted,
            "updates": self._progress.updates,
            "diverged": self._keeper.diverged,
            "seconds_communicate": self._communication.seconds_per_step * steps,
            "bytes_sent": sent,
            "bytes_received": sent,
        }


class ServedSide(AbstractSide):
    """A worker of parameter servers."""

    evaluated = "weights at the servers; BatchNorm statistics: mean over workers' latest"

    def __init__(
        self,
        config: dict[str, Any],
        scheme: AbstractScheme,
        budget: Budget,
        rate: LearningRate,
        device: torch.device,
    ) -> None:
        self.num_batches = budget.num_steps
        self._strategy = ParameterServerStrategy(
            scheme,
            workers=config["workers"],
            batch_size=config["batch_size"],
            num_steps=budget.num_steps,
            snapshot_steps=budget.snapshots,
            learning_rate=rate,
            device=device,
            timeout_seconds=config["cluster"]["timeout_seconds"],
        )

    def trainer(self, callbacks: list[Callback], **options: Any) -> Trainer:
        return Trainer(
            strategy=self._strategy,
            plugins=[LightningEnvironment()],
            devices=1,
            callbacks=callbacks,
            **options,
        )

    def samples(self) -> int:
        return self._strategy.samples

    def held(self, module: LightningModule) -> list[nn.Parameter]:
        return self._strategy.held

    def finish(self) -> list[Snapshot]:
        return self._strategy.finish()

    def seen(self, steps: int) -> dict[str, Any]:
        return {
            "counted": self._strategy.counted,
            "updates": self._strategy.updates,
            "diverged": False,  # the servers say
            "seconds_communicate": self._strategy.seconds_communicating,
            "bytes_sent": self._strategy.wire.bytes_sent,
            "bytes_received": self._strategy.wire.bytes_received,
        }


def side_of(
    config: dict[str, Any],
    scheme: AbstractScheme,
    budget: Budget,
    rate: LearningRate,
    clock: TrainingClock,
    device: torch.device,
) -> AbstractSide:
    if scheme.servers:
        return ServedSide(config, scheme, budget, rate, device)
    return SynchronousSide(config, budget, rate, clock, device)
