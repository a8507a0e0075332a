"""Data of a point as its processes read it: batches for each worker, and for evaluation."""

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from paceline.data.batches import WorkerBatches, evaluation_batches
from paceline.data.image_set import AbstractImageData, ImageSet
from paceline.data.stream import SampleStream
from paceline.errors import SettingError


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


def open_data(data: Any, reading: Reading) -> PointData:
    """Open an AbstractImageData or any LightningDataModule.

    Raises SettingError("batch_size") if it exceeds a worker's share of the images.
    """
    if isinstance(data, AbstractImageData):
        opened = _open_images(data, reading)
    else:
        from paceline.run.data_module import open_data_module

        opened = open_data_module(data, reading)
    share = opened.num_train // reading.num_workers
    if reading.batch_size > share:
        raise SettingError(
            "batch_size",
            f"{reading.batch_size} is more than a worker's share of {share} images "
            f"({opened.num_train} over workers={reading.num_workers})",
        )
    return opened


def _open_images(data: AbstractImageData, reading: Reading) -> PointData:
    splits = data.load()
    stream = SampleStream(len(splits.train), reading.seed)

    def train(worker: int, num_batches: int) -> WorkerBatches:
        return WorkerBatches(
            splits.train,
            stream,
            worker=worker,
            num_workers=reading.num_workers,
            batch_size=reading.batch_size,
            num_batches=num_batches,
            mean=splits.mean,
            std=splits.std,
            augmentation=data.augmentation,
            dtype=reading.dtype,
        )

    def evaluation(images: ImageSet) -> Callable[[], Iterable[Any]]:
        size = reading.evaluation_batch_size
        return lambda: evaluation_batches(images, size, splits.mean, splits.std, reading.dtype)

    share = cache(lambda worker: train(worker, sys.maxsize))
    return PointData(
        len(splits.train),
        stream,
        train,
        lambda worker, n: share(worker)[n],
        evaluation(splits.validation),
        evaluation(splits.test),
    )
