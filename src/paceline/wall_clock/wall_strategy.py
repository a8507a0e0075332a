"""Base class of strategies on real processes, where one process is one worker."""

from abc import abstractmethod
from collections.abc import Iterable, Sequence

import numpy as np
import torch.distributed as dist
from pytorch_lightning import LightningModule

from paceline.engine.reports import PairAverage, StrategyReport, WorkerReport
from paceline.engine.training_strategy import (
    AbstractTrainingStrategy,
    DrawAll,
    DrawOne,
    SizedBatches,
)
from paceline.engine.weights_digest import weights_digest
from paceline.timing.pace import Pace


class AbstractWallStrategy(AbstractTrainingStrategy):
    """Strategy of one worker.

    `counted`: number of workers that really take part. `num_steps`: number of this worker's steps
    so far. `step_numbers`: run-wide numbers of this worker's steps, the next one last; empty if
    servers grant steps. `pace` emulates the worker's accelerator.
    """

    counted: int = 0
    diverged: bool = False
    num_steps: int = 0
    step_numbers: Sequence[int] = ()
    pace: Pace | None = None

    @property
    @abstractmethod
    def updates(self) -> int:
        """Number of updates of this worker's weights."""

    @property
    @abstractmethod
    def num_batches(self) -> int:
        """Largest number of batches that this worker may draw."""

    @property
    @abstractmethod
    def bytes_exchanged(self) -> tuple[int, int]:
        """Bytes sent and received by this worker."""

    @property
    @abstractmethod
    def seconds_communicating(self) -> float:
        """Seconds that this worker spent communicating, waiting for others included."""

    @property
    def averages(self) -> Sequence[PairAverage]:
        """Pairwise means in order."""
        return ()

    @abstractmethod
    def trained_module(self) -> LightningModule:
        """Return the module that is being trained."""

    def training_batches(self, train: DrawAll, batch: DrawOne) -> SizedBatches:
        return train(dist.get_rank(), self.num_batches, self._begin_anew)

    def _begin_anew(self) -> None:
        """Start the emulated step after its data, for which all have met, have come."""
        if self.pace is not None:
            self.pace.begin()

    def batches_drawn(self) -> Iterable[tuple[int, int]]:
        return ((dist.get_rank(), n) for n in range(self.num_steps))

    def report(self, step_ends: np.ndarray, seconds_data: float) -> StrategyReport:
        sent, received = self.bytes_exchanged
        worker = WorkerReport(
            worker=dist.get_rank(),
            steps=self.num_steps,
            step_ends=step_ends,
            weights_digest=weights_digest(self.trained_module().parameters()),
            seconds_data=seconds_data,
            seconds_communicating=self.seconds_communicating,
            bytes_sent=sent,
            bytes_received=received,
            late_steps=self.pace.late_steps if self.pace else 0,
            step_numbers=self.step_numbers,
            averages=self.averages,
        )
        return StrategyReport(self.counted, self.updates, self.diverged, [worker])
