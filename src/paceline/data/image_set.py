"""Defines decoded images with labels, the three splits of a data set, and every data set's base."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from paceline.data.augmentation import AbstractAugmentation
from paceline.data.placement import Store
from paceline.data.source import ChannelStatistics, Part, Source
from paceline.errors import SettingError


@dataclass(frozen=True)
class ImageSet:
    """Images, uint8 [N, C, H, W], and labels, int64 [N].

    Images and labels must not be written to, since they may be mapped from files. `mapped_again()`
    returns the same set in a new mapping of its files; it is None if the set is not mapped.
    """

    images: Tensor
    labels: Tensor
    mapped_again: "Callable[[], ImageSet] | None" = None

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, samples: Tensor) -> tuple[Tensor, Tensor]:
        """Return the images and the labels with the indices `samples`, int64 [B]."""
        # 5 times faster than images[samples]
        return self.images.index_select(0, samples), self.labels.index_select(0, samples)

    def opened_again(self) -> "ImageSet":
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


class AbstractImageData(ABC):
    """Base class of all data sets, built from the settings `data.*`.

    `is_mapped`: True if `load` maps files into memory, so that processes share them; False if each
    process has a copy of all images. A data set that verifies its files' checksums, or that makes
    its images itself, declares `root` as UNKEYED (not part of a run's key), since its images are
    the same for any `root`.

    Raises SettingError("data.image_shape") for a shape other than [C, H, W], and SettingErrors for
    a wrong `split_seed` or `augmentation`. `prepare` and `load` raise SettingErrors whose messages
    have one line.
    """

    is_mapped: ClassVar[bool] = False

    def __init__(
        self,
        root: str,
        num_classes: int,
        image_shape: Sequence[int],
        num_validation: int,
        split_seed: int,
        augmentation: AbstractAugmentation | None,
    ) -> None:
        if len(image_shape) != 3 or min(image_shape) < 1:
            raise SettingError("data.image_shape", f"[C, H, W] is needed, not {list(image_shape)}")
        if not isinstance(split_seed, int) or not 0 <= split_seed < 2**32:
            message = f"a whole number from 0 to 2**32 - 1 is needed, not {split_seed!r}"
            raise SettingError("data.split_seed", message)
        if augmentation is not None and not isinstance(augmentation, AbstractAugmentation):
            message = f"a file of conf/data/augmentation or null is needed, not {augmentation!r}"
            raise SettingError("data.augmentation", message)
        self.root = Path(root).expanduser()
        self.num_classes = num_classes
        self.image_shape = tuple(int(size) for size in image_shape)
        self.num_validation = num_validation
        self.split_seed = split_seed
        self.augmentation = augmentation

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

        Raises SettingError("data.store") for a data set that has no files to decode.
        """
        message = f"decoded_each_time, but {type(self).__name__} has no files to decode"
        raise SettingError("data.store", message)

    def check_store(self, store: Store | None) -> None:
        """Raise SettingError("data.store") if this data set cannot be read from `store`."""
        if store == "mapped" and not self.is_mapped:
            message = f"mapped, but {type(self).__name__} has no prepared file: null or memory"
            raise SettingError("data.store", message)
        if store == "decoded_each_time":
            self.encoded()

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
