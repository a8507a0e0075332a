"""Modules that block, change their gradients, or fail, on the tiny problem."""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from pytorch_lightning.strategies import Strategy

from paceline.model.classifier import Classifier


class ActingClassifier(Classifier):
    """A Classifier that does something of the test's before each batch, which is no part of its
    training: the run takes it as one of its own, and does not rehearse it.
    """

    def __init__(self, network: Any, optimizer: Any) -> None:
        super().__init__(network, optimizer)
        self.on_train_batch_start = self.before_batch

    def before_batch(self, batch: Any, batch_idx: int) -> None:
        raise NotImplementedError


class WaitingClassifier(ActingClassifier):
    """Worker `blocked` takes no step until the other has taken 200, and gives up after `patience`.

    `broadcasting`: with the broadcast that Lightning does each step when it knows of two workers.
    """

    def __init__(
        self,
        network: Any,
        optimizer: Any,
        blocked: int,
        folder: str,
        broadcasting: bool,
        patience: int,
    ) -> None:
        super().__init__(network, optimizer)
        self._blocked = blocked
        self._sign = Path(folder) / "the other has taken 200 steps"
        self._broadcasting = broadcasting
        self._patience = patience
        self.on_train_start = self.check_world

    def check_world(self) -> None:
        strategy: Strategy | Any = self.trainer.strategy
        assert strategy.world_size == 1
        if self._broadcasting:
            strategy.world_size = 2

    def before_batch(self, batch: Any, batch_idx: int) -> None:
        if dist.get_rank() != self._blocked:
            if batch_idx == 200:
                self._sign.touch()
            return
        deadline = time.monotonic() + self._patience
        while batch_idx == 0 and not self._sign.exists():
            if time.monotonic() > deadline:
                raise TimeoutError("lockstep: the other worker waits for this one")
            time.sleep(0.01)


class DoublingClassifier(Classifier):
    """Puts twice the gradient in the place of each."""

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        for weight in self.parameters():
            assert weight.grad is not None
            weight.grad = 2 * weight.grad


class FailingClassifier(ActingClassifier):
    """Worker 1 fails in its third step: by an exception, or `killed` by SIGKILL."""

    def __init__(self, network: Any, optimizer: Any, killed: bool) -> None:
        super().__init__(network, optimizer)
        self._killed = killed

    def before_batch(self, batch: Any, batch_idx: int) -> None:
        if dist.get_rank() == 1 and batch_idx == 2:
            if self._killed:
                os.kill(os.getpid(), 9)
            raise ValueError("a bad batch")


def with_periods(optimizer: Any, periods: Sequence[int], interval: str) -> Any:
    """The optimizer and a scheduler: a tenth of the rate after so many batches or epochs."""
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, periods)
    return [optimizer], [{"scheduler": scheduler, "interval": interval}]


class ScheduledClassifier(Classifier):
    """A tenth of the rate after each of the first `periods`; these are batches or epochs."""

    def __init__(self, network: Any, optimizer: Any, interval: str, periods: list[int]) -> None:
        super().__init__(network, optimizer)
        self._interval, self._periods = interval, periods

    def configure_optimizers(self) -> Any:
        return with_periods(super().configure_optimizers(), self._periods, self._interval)
