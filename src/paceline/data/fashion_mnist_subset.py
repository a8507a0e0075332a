"""Reads 12,000 training and 2,000 test images of Fashion-MNIST that are installed with Paceline.

Copyright (c) 2017 Zalando SE, MIT licence (its text is in the .npz file). The script
`scripts/make_fashion_mnist_subset.py` drew the images at random, equally many of each class.
"""

from pathlib import Path
from typing import Annotated

import numpy as np

from paceline.data.image_set import AbstractImageData, Known, Splits, splits_in_memory
from paceline.data.source import Source, whole
from paceline.settings import UNKEYED

SUBSET_FILE = Path(__file__).with_suffix(".npz")


class FashionMnistSubset(AbstractImageData):
    """Subset of Fashion-MNIST that each process unpacks into its own memory; `root` is not used.

    Unpacking takes 0.1 s, and the unpacked images take 11 MB.
    """

    root: Annotated[Path, UNKEYED]

    @property
    def known(self) -> Known:
        return Known(12_000, 10, (1, 28, 28))

    def prepare(self) -> None:
        """Do nothing, since images are unpacked when they are loaded."""

    def load(self) -> Splits:
        with np.load(SUBSET_FILE) as file:
            train, test = (
                whole(file[f"{part}_images"], file[f"{part}_labels"]) for part in ("train", "test")
            )
        source = Source(train, test, 10, (1, 28, 28))
        return splits_in_memory(self, source, "the Fashion-MNIST subset")
