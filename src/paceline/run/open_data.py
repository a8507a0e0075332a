"""Opens the data of a point: the project's own, or anybody's LightningDataModule."""

import sys
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from paceline.data.batches import WorkerBatches, evaluation_batches
from paceline.data.image_set import AbstractImageData, ImageSet
from paceline.data.stream import SampleStream
from paceline.errors import SettingError
from paceline.run.data_module import open_data_module
from paceline.run.point_data import PointData, Reading


def open_data(data: Any, reading: Reading) -> PointData:
    """Open an AbstractImageData or any LightningDataModule.

    Raises SettingError("batch_size") if it exceeds a worker's share of the images.
    """
    if isinstance(data, AbstractImageData):
        opened = _open_images(data, reading)
    else:
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
