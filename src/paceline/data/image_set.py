"""Defines decoded images with labels, the three splits of a data set, and every data set's base."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from paceline.data.augmentation import AbstractAugmentation
from paceline.data.placement import Store
from paceline.data.source import ChannelStatistics, Part, Source, check_held_out
from paceline.errors import SettingError
from paceline.settings import Count, Seed, Whole, checked_arguments

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class ImageSet:
    """Images, uint8 [N, C, H, W], and labels, int64 [N].

    Images and labels must not be written to, since they may be mapped from files. `mapped_again()`
    returns the same set in a new mapping of its files; it is None if the set is not mapped.
    """

    images: Tensor
    labels: Tensor
    mapped_again: Callable[[], ImageSet] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, samples: Tensor) -> tuple[Tensor, Tensor]:
        """Return the images and the labels with the indices `samples`, int64 [B]."""
        # 5 times faster than images[samples]
        return self.images.index_select(0, samples), self.labels.index_select(0, samples)

    def opened_again(self) -> ImageSet:
        """Return the same set in a new mapping, in which no page has been read yet.

        A set that is not mapped is returned unchanged.
        """
        return self.mapped_again() if self.mapped_again else self


@dataclass(frozen=True)
class Splits:
    """Training, validation and test images.

    `mean` and `std` are those of the training images' pixels, one value per channel, where pixel
    values are scaled from 0..255 to 0..1.
    """

    train: ImageSet
    validation: ImageSet
    test: ImageSet
    mean: tuple[float, ...]
    std: tuple[float, ...]


class Known(NamedTuple):
    """Content of a data set: number of images for training and validation, classes, shape.

    All classes have equally many images.
    """

    num_images: int
    num_classes: int
    image_shape: tuple[int, ...]


class AbstractImageData(ABC):
    """Base class of all data sets, built from the settings `data.*`.

    A data set that verifies its files' checksums, or that makes its images itself, declares `root`
    as UNKEYED (not part of a run's key), since its images are the same for any `root`.

    Constructors, also those of subclasses, check their arguments by their types, and raise a
    SettingError that names the setting. `prepare` and `load` raise SettingErrors whose messages
    have one line.
    """

    has_files: ClassVar[bool] = False  # that `encoded` decodes each time

    @property
    def known(self) -> Known | None:
        """Content that is known before the data are read; None if nothing is known."""
        return None

    @property
    def num_training_images(self) -> int | None:
        """Number of training images, if it is known before the data are read."""
        return None if self.known is None else self.known.num_images - self.num_validation

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "__init__" in vars(cls):
            cls.__init__ = checked_arguments("data")(cls.__init__)

    @checked_arguments("data")
    def __init__(
        self,
        root: str,
        num_classes: Whole,
        image_shape: list[Whole],
        num_validation: Count,
        split_seed: Seed,
        augmentation: AbstractAugmentation | None,
    ) -> None:
        if len(image_shape) != 3:
            raise SettingError("data.image_shape", f"[C, H, W] is needed, not {image_shape}")
        self.root = Path(root).expanduser()
        self.num_classes = num_classes
        self.image_shape = tuple(image_shape)
        self.num_validation = num_validation
        self.split_seed = split_seed
        self.augmentation = augmentation

    def require_files(self) -> None:  # noqa: B027 (most data sets have none to download)
        """Raise SettingError("data.root") if files are missing that cannot be downloaded either.

        They are not read, and nothing slow is imported.
        """

    @abstractmethod
    def prepare(self) -> None:
        """Find or download the data set and verify it, so that `load` becomes cheap.

        The method may be called repeatedly, and by several processes at once. It prints its
        progress to stderr.
        """

    @abstractmethod
    def load(self) -> Splits:
        """Return all images; call `prepare` first if that has not been done.

        Loading a prepared data set takes a few 100 ms at most.
        """

    def encoded(self) -> Part:
        """Return the training images as files; indexing decodes the files of the chosen images.

        Only a data set that has files can do so.
        """
        raise NotImplementedError

    def check_unread(self, store: Store | None) -> None:
        """Raise SettingError for settings that are seen to be wrong before the data are read.

        `store`: what samples are to be read from.
        """
        if store == "decoded_each_time" and not self.has_files:
            message = f"decoded_each_time, but {type(self).__name__} has no files to decode"
            raise SettingError("data.store", message)
        if (known := self.known) is not None:
            self.check(known.num_classes, known.image_shape, type(self).__name__)
            check_held_out(self.num_validation, known.num_images, known.num_classes)

    def check(self, num_classes: int, image_shape: Sequence[int], origin: object) -> None:
        """Check that a source's number of classes and image shape are those of the settings.

        `origin` names the source in messages. Raises SettingError("data.num_classes") or
        SettingError("data.image_shape") if one differs, and SettingError("data.root") for a source
        with a single class.
        """
        if num_classes < 2:
            raise SettingError("data.root", f"{origin} has one class only: nothing to learn")
        if num_classes != self.num_classes:
            message = f"{self.num_classes}, but {origin} has {num_classes} classes"
            raise SettingError("data.num_classes", message)
        if tuple(image_shape) != self.image_shape:
            message = f"{list(self.image_shape)}, but {origin} has images of {list(image_shape)}"
            raise SettingError("data.image_shape", message)


def splits_in_memory(data: AbstractImageData, source: Source, origin: str) -> Splits:
    """Check `source` against the settings of `data`; return its splits in this process's memory.

    `origin` names the source in messages. Raises the SettingErrors of `data.check`.
    """
    import torch  # takes seconds, and settings are checked without it

    data.check(source.num_classes, source.image_shape, origin)
    statistics = ChannelStatistics(source.image_shape[0])
    sets: dict[str, ImageSet] = {}
    for name, part in source.parts(data.num_validation, data.split_seed).items():
        images = np.concatenate(list(part.chunks()))
        if name == "train":
            statistics.add(images)
        sets[name] = ImageSet(torch.from_numpy(images), torch.from_numpy(part.labels))
    mean, std = statistics.mean_and_std()
    return Splits(**sets, mean=mean, std=std)
