"""Lightning strategy of a split worker's other processes, whose first drives the scheme's rule."""

import torch
from pytorch_lightning import Trainer
from pytorch_lightning.strategies import SingleDeviceStrategy
from torch import nn
from torch.optim import Optimizer

from paceline.clock.run_spec import RunSpec
from paceline.clock.snapshot import Snapshot
from paceline.clock.split.split_worker import SplitWorker
from paceline.clock.training_strategy import RemoteOptimizer
from paceline.clock.wall.wall_strategy import AbstractWallStrategy
from paceline.exchange.process_group import count_workers
from paceline.timing.pace import Pace


class ShardStrategy(AbstractWallStrategy, SingleDeviceStrategy):
    """Strategy of a process that computes for its worker, and leaves the rule to the first.

    After each step it sends its part of the gradient there, and receives its part of the weights.
    `num_batches`: largest number of batches that its worker may draw.
    """

    def __init__(
        self,
        split: SplitWorker,
        run: RunSpec,
        *,
        num_batches: int,
        device: torch.device | str,
        pace: Pace | None,
    ) -> None:
        super().__init__(device=device)  # pyright: ignore[reportUnknownMemberType]
        self.run, self.split, self.pace, self._part = run, split, pace, split
        self._num_batches = num_batches

    def setup(self, trainer: Trainer) -> None:
        super().setup(trainer)
        own = self.optimizers[0]  # the first process has refused what cannot be
        remote: Optimizer = RemoteOptimizer(own, self._part.zero_gradient, self._step)
        self.optimizers = [remote]
        trainer.should_stop = not self._part.take()

    def on_train_start(self) -> None:
        super().on_train_start()
        self.counted = count_workers(self.run.num_workers, is_worker=False)
        if self.pace is not None:
            self.pace.begin()

    @property
    def held_weights(self) -> list[nn.Parameter]:
        return list(self.trained_module().parameters())

    @property
    def num_batches(self) -> int:
        return self._num_batches

    @property
    def updates(self) -> int:
        return self.num_steps

    @property
    def samples(self) -> int:
        return self.run.samples_at(self.num_steps * self.run.num_workers)

    @property
    def bytes_exchanged(self) -> tuple[int, int]:
        return 0, 0

    @property
    def seconds_communicating(self) -> float:
        return 0.0

    def finish(self) -> list[Snapshot]:
        return []

    def _step(self) -> None:
        self.wait_for_pace()
        self._part.gather_gradient()
        self.trained_module().trainer.should_stop = not self._part.take()
        self.num_steps += 1
        if self.pace is not None:
            self.pace.begin()
