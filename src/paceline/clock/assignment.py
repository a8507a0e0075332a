"""Description of a run for its strategies."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from paceline.data.traffic import DataTraffic
from paceline.model.learning_rate import LearningRate
from paceline.timing.split_step import SplitStep
from paceline.timing.workload import AbstractWorkload

if TYPE_CHECKING:  # Lightning takes seconds
    from paceline.clock.split_worker import SplitWorker


@dataclass(frozen=True)
class Assignment:
    """Arguments that every strategy gets of a run.

    `batch_size`: images per worker and step. `num_steps`: number of steps of all workers together.
    `snapshot_samples`: samples over all workers after which to keep the weights, ascending.
    `workload`: network that the gradients stand for on a modelled cluster. `traffic`: how data move
    there. `sample_decay`: of the moving average that is evaluated, too; None for no average.
    `split`: this process's part of a split worker, `split_step`: messages inside one on a modelled
    cluster; None for whole ones. `epoch_samples`: of a pass over the data.
    """

    num_workers: int
    batch_size: int
    num_steps: int
    snapshot_samples: Sequence[int]
    learning_rate: LearningRate
    seed: int
    workload: AbstractWorkload
    traffic: DataTraffic
    sample_decay: float | None = None
    split: "SplitWorker | None" = None
    split_step: SplitStep | None = None
    epoch_samples: int | None = None
