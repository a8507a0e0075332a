"""Defines images in memory, their three splits, and the interface of every data set."""

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

    They may be memory-mapped, so they must not be written to. `mapped_again()` maps them anew; it
    is None for images in memory.
    """

    images: Tensor
    labels: Tensor
    mapped_again: "Callable[[], ImageSet] | None" = None

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, samples: Tensor) -> tuple[Tensor, Tensor]:
        """Return some images and their labels; `samples`: int64 [B]."""
        # 5 times faster than images[samples]
        return self.images.index_select(0, samples), self.labels.index_select(0, samples)

    def opened_again(self) -> "ImageSet":
        """Return the same images in a mapping that holds none of the pages that were read."""
        return self.mapped_again() if self.mapped_again else self


@dataclass(frozen=True)
class Splits:
    """Three sets of images, with the statistics of the training images.

    `mean` and `std` have one value per channel, on the scale 0 to 1.
    """

    train: ImageSet
    validation: ImageSet
    test: ImageSet
    mean: tuple[float, ...]
    std: tuple[float, ...]


class AbstractImageData(ABC):
    """Base class of all data sets, built from the settings of `data`.

    Raises SettingError("data.image_shape") for a shape other than [C, H, W]. `prepare` and `load`
    raise SettingErrors with a message on one line. A data set that verifies its files or makes its
    images declares `root` as UNKEYED: two values of it cannot give different images. `is_mapped`:
    True if `load` maps files, False if each process has all images.
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

        The call is idempotent and safe for several processes at once; it prints its progress to
        stderr.
        """

    @abstractmethod
    def load(self) -> Splits:
        """Return all images; prepare the data set first if that has not been done.

        A prepared data set takes a few 100 ms at most.
        """

    def encoded(self) -> Part:
        """Return the training images in their files, which are decoded when indexed.

        Raises SettingError("data.store") for a data set that has none.
        """
        message = f"decoded_each_time, but {type(self).__name__} has no files to decode"
        raise SettingError("data.store", message)

    def check_store(self, store: Store | None) -> None:
        """Raise SettingError("data.store") for a store that this data set does not have."""
        if store == "mapped" and not self.is_mapped:
            message = f"mapped, but {type(self).__name__} has no prepared file: null or memory"
            raise SettingError("data.store", message)
        if store == "decoded_each_time":
            self.encoded()

    def check(self, num_classes: int, image_shape: Sequence[int], origin: object) -> None:
        """Compare the content of a source with the settings. `origin` names it in messages.

        Raises SettingError("data.num_classes") or SettingError("data.image_shape") if they differ,
        and SettingError("data.root") for a source with a single class.
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
    """Check `source` against the settings of `data`, split it and copy it into this process.

    `origin` names the source in messages. Raises SettingError as `data.check` does.
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
