"""Synchronous all-reduce on real processes: Lightning's own DDP with overlapped buckets."""

import datetime

from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.strategies import DDPStrategy

from paceline.errors import SettingError
from paceline.exchange.process_group import count_workers
from paceline.model.learning_rate import LearningRate


def synchronous_strategy(timeout_seconds: float) -> DDPStrategy:
    """For two workers and more; one trains without DDP: the best one-worker run is the baseline.

    BatchNorm statistics stay per worker (`broadcast_buffers` costs a broadcast per step); the mean
    over workers is evaluated.
    """
    return DDPStrategy(
        broadcast_buffers=False,
        gradient_as_bucket_view=True,
        timeout=datetime.timedelta(seconds=timeout_seconds),
    )


def without_sigterm_broadcast(trainer: Trainer) -> Trainer:
    """Spare the loop a collective per step (Lightning PR 20825): the launcher ends all workers.

    Private to Lightning; where the method is gone, so is its cost.
    """
    loop = trainer.fit_loop.epoch_loop
    if hasattr(loop, "_broadcast_sigterm_tensor"):
        loop._broadcast_sigterm_tensor = lambda: None
    return trainer


class SynchronousProgress(Callback):
    """Counts samples over all workers, and sets the rate by them before each step."""

    def __init__(
        self, workers: int, images_per_update: int, learning_rate: LearningRate | None
    ) -> None:
        self.updates = 0
        self.counted = 0
        self._workers = workers
        self._images_per_update = images_per_update
        self._learning_rate = learning_rate

    @property
    def samples(self) -> int:
        return self.updates * self._images_per_update

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.lr_scheduler_configs:
            self._leave_rate_to_module()
        for group in trainer.optimizers[0].param_groups:
            group.setdefault("initial_lr", group["lr"])
        self.counted = count_workers(self._workers, is_worker=True)

    def on_train_batch_start(self, trainer: Trainer, *_: object) -> None:
        if self._learning_rate is None:
            return
        factor = self._learning_rate.factor(self.samples)
        for group in trainer.optimizers[0].param_groups:
            group["lr"] = group["initial_lr"] * factor

    def _leave_rate_to_module(self) -> None:
        rate = self._learning_rate
        if rate is not None and (rate.rule, rate.schedule) != ("none", "constant"):
            raise SettingError("training.schedule", "the module brings a scheduler of its own")
        self._learning_rate = None

    def on_train_batch_end(self, *_: object) -> None:
        self.updates += 1
