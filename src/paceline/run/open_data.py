"""Opens the data of a point: the project's own, or anybody's LightningDataModule."""

from collections.abc import Callable, Iterable
from typing import Any

import torch

from paceline.data.batches import DecodedImages, evaluation_batches
from paceline.data.image_set import AbstractImageData, ImageSet
from paceline.data.source import curve_images
from paceline.run.data_module import open_data_module
from paceline.run.placed_data import PlacedData, PointData, Reading
from paceline.run.training_set import TrainingImages


def open_data(data: Any, reading: Reading) -> PointData:
    """Open an AbstractImageData or any LightningDataModule.

    Raises SettingError("batch_size") if it exceeds a worker's share of the images, and
    SettingError("data.store") for a store that the data do not have.
    """
    if not isinstance(data, AbstractImageData):
        return open_data_module(data, reading)
    training, evaluations = _open_images(data, reading)
    placed = PlacedData(training, reading)
    return PointData(len(training), placed.traffic, placed.train, placed.batch, *evaluations)


def _open_images(
    data: AbstractImageData, reading: Reading
) -> tuple[TrainingImages, list[Callable[[], Iterable[Any]]]]:
    """Return the training images, and the batches of validation, of the curve, and of the test.

    Nothing else refers to the training images, so that they are freed when a share is held.
    """
    splits = data.load()
    mean, std = splits.mean, splits.std
    decoded = reading.placement.store == "decoded_each_time"
    samples = DecodedImages(data.encoded()) if decoded else splits.train
    training = TrainingImages(splits, samples, data.augmentation, reading.dtype)

    validation = splits.validation
    drawn = curve_images(validation.labels.numpy(), reading.curve_images)
    chosen = None if drawn is None else torch.from_numpy(drawn)

    def evaluation(
        images: ImageSet, chosen: torch.Tensor | None = None
    ) -> Callable[[], Iterable[Any]]:
        size = reading.evaluation_batch_size
        return lambda: evaluation_batches(images, size, mean, std, reading.dtype, chosen)

    return training, [
        evaluation(validation),
        evaluation(validation, chosen),
        evaluation(splits.test),
    ]
