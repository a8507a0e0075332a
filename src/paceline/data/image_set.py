"""Images in memory, their three splits, and what every data set is asked for."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from torch import Tensor

from paceline.data.augmentation import AbstractAugmentation
from paceline.errors import SettingError


@dataclass(frozen=True)
class ImageSet:
    """`images`: uint8 [N, C, H, W]; `labels`: int64 [N]. Possibly memory-mapped: do not write."""

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Splits:
    """`mean` and `std` are of the training images, one per channel, on the scale 0 to 1."""

    train: ImageSet
    validation: ImageSet
    test: ImageSet
    mean: tuple[float, ...]
    std: tuple[float, ...]


class AbstractImageData(ABC):
    """A data set by its settings. Errors of `prepare` and `load` are SettingErrors on one line.

    `root_tells_content`: whether another `root` may hold other images; no where they are verified.
    """

    root_tells_content: ClassVar[bool] = True

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
        self.root = Path(root).expanduser()
        self.num_classes = num_classes
        self.image_shape = tuple(int(size) for size in image_shape)
        self.num_validation = num_validation
        self.split_seed = split_seed
        self.augmentation = augmentation

    @abstractmethod
    def prepare(self) -> None:
        """Find or download, verify, and leave ready for a cheap `load`.

        Idempotent, and safe for several processes at once; progress goes to stderr.
        """

    @abstractmethod
    def load(self) -> Splits:
        """All images, in a few 100 ms at most once prepared; prepares if that is still to do."""

    def check(self, num_classes: int, image_shape: Sequence[int], where: object) -> None:
        """Compare what was found at `where` with the settings; raise SettingError by name."""
        if num_classes < 2:
            raise SettingError("data.root", f"{where} has one class only: nothing to learn")
        if num_classes != self.num_classes:
            raise SettingError(
                "data.num_classes", f"{self.num_classes}, but {where} has {num_classes} classes"
            )
        if tuple(image_shape) != self.image_shape:
            raise SettingError(
                "data.image_shape",
                f"{list(self.image_shape)}, but {where} has images of {list(image_shape)}",
            )
