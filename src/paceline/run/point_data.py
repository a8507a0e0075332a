"""Data of a point as its processes read it: batches for each worker, and for evaluation."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from paceline.data.stream import SampleStream


@dataclass(frozen=True)
class Reading:
    """Settings by which a run reads its data.

    `batch_size`: images per worker and step. `dtype`: type of image values.
    """

    num_workers: int
    batch_size: int
    seed: int
    evaluation_batch_size: int
    dtype: torch.dtype = torch.float32


@dataclass(frozen=True)
class PointData:
    """Data of a run.

    `train(worker, num_batches)` iterates over the first batches of a worker; `batch(worker, n)`
    returns one of them. `validation()` and `test()` start a new pass over (images, labels).
    """

    num_train: int
    stream: SampleStream
    train: Callable[[int, int], Any]
    batch: Callable[[int, int], Any]
    validation: Callable[[], Iterable[Any]]
    test: Callable[[], Iterable[Any]]
