"""Makes a data set from a seed: any number of images of any shape, whose classes can be learnt."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np

from paceline.data.image_set import AbstractImageData, Known, Splits, splits_in_memory
from paceline.data.source import Part, Source, whole
from paceline.errors import SettingError
from paceline.random_bits import random_bits
from paceline.settings import UNKEYED, Seed, Whole

_TILES = 4  # a class is a pattern of 4 x 4 tiles of random brightness


class Synthetic(AbstractImageData):
    """Data set in which an image is the mean of its class's pattern and of noise.

    Each process makes the images itself; `root` is not used. `seed` determines the images,
    `split_seed` which of them are the validation set. Raises SettingError for fewer than two
    classes, and for fewer images than classes.
    """

    root: Annotated[Path, UNKEYED]

    def __init__(self, num_train: Whole, num_test: Whole, seed: Seed, **settings: Any) -> None:
        super().__init__(**settings)
        if self.num_classes < 2:
            raise SettingError("data.num_classes", f"{self.num_classes}: at least 2 are needed")
        for name, number in (("num_train", num_train), ("num_test", num_test)):
            if number < self.num_classes:
                raise SettingError(f"data.{name}", f"{number} images of {self.num_classes} classes")
        self.num_train, self.num_test, self.seed = num_train, num_test, seed

    @property
    def known(self) -> Known:
        return Known(self.num_train, self.num_classes, self.image_shape)

    def prepare(self) -> None:
        """Do nothing, since images are made when they are loaded."""

    def load(self) -> Splits:
        train, test = self._part("train", self.num_train), self._part("test", self.num_test)
        source = Source(train, test, self.num_classes, self.image_shape)
        return splits_in_memory(self, source, "the synthetic set")

    def _part(self, name: str, number: int) -> Part:
        labels = np.arange(number) % self.num_classes
        noise = _random_bytes((number, *self.image_shape), "noise", name, self.seed)
        return whole(noise // 2 + self._patterns()[labels] // 2, labels)

    def _patterns(self) -> np.ndarray:
        channels, height, width = self.image_shape
        shape = (self.num_classes, channels, _TILES, _TILES)
        tiles = _random_bytes(shape, "tiles", self.seed)
        rows, columns = np.arange(height) * _TILES // height, np.arange(width) * _TILES // width
        return tiles[:, :, rows[:, None], columns]


def _random_bytes(shape: tuple[int, ...], *key: int | str) -> np.ndarray:
    size = int(np.prod(shape))
    bits = random_bits(np.arange(-(-size // 8)), *key).astype("<u8")
    return bits.view(np.uint8)[:size].reshape(shape)
