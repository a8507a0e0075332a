"""Data of a point as its processes read it: batches for each worker, and for evaluation."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from paceline.data.placement import Placement
from paceline.data.traffic import DataTraffic


@dataclass(frozen=True)
class Reading:
    """Settings by which a run reads its data.

    `batch_size`: images per worker and step. `dtype`: type of image values. `worker`: worker of
    this process; None if one process draws for all. `curve_images`: number of validation images on
    which all snapshots but the last are scored; None for all.
    """

    num_workers: int
    batch_size: int
    seed: int
    evaluation_batch_size: int
    placement: Placement
    dtype: torch.dtype = torch.float32
    worker: int | None = None
    curve_images: int | None = None


@dataclass(frozen=True)
class PointData:
    """Data of a run.

    `train(worker, num_batches)` iterates over the first batches of a worker; `batch(worker, n)`
    returns one of them. `validation()`, `curve()` and `test()` start a new pass over (images,
    labels): `curve()` over those validation images on which all snapshots but the last are scored.
    `traffic`: order of the data, and how they move among workers.
    """

    num_train: int
    traffic: DataTraffic
    train: Callable[..., Any]
    batch: Callable[[int, int], Any]
    validation: Callable[[], Iterable[Any]]
    curve: Callable[[], Iterable[Any]]
    test: Callable[[], Iterable[Any]]
