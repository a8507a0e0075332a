"""Reads 12,000 training and 2,000 test images of Fashion-MNIST that are installed with Paceline.

Copyright (c) 2017 Zalando SE, MIT licence (its text is in the .npz file). The script
`scripts/make_fashion_mnist_subset.py` drew the images at random, equally many of each class.
"""

import hashlib
import io
from pathlib import Path
from typing import Annotated

import numpy as np

from paceline.data.image_set import AbstractImageData, Known, Splits, splits_in_memory
from paceline.data.source import Source, whole
from paceline.errors import SettingError
from paceline.settings import UNKEYED

SUBSET_FILE = Path(__file__).with_suffix(".npz")
CHECKSUM_FILE = SUBSET_FILE.with_suffix(".sha256")  # as sha256sum writes it


class FashionMnistSubset(AbstractImageData):
    """Subset of Fashion-MNIST that each process unpacks into its own memory; `root` is not used.

    Unpacking takes 0.1 s, and the unpacked images take 11 MB.
    """

    root: Annotated[Path, UNKEYED]

    @property
    def known(self) -> Known:
        return Known(12_000, 10, (1, 28, 28))

    def prepare(self) -> None:
        verified_subset()

    def load(self) -> Splits:
        with np.load(io.BytesIO(verified_subset())) as file:
            arrays = {name: file[name] for name in file.files if name != "licence"}
        train, test = (
            whole(arrays[f"{part}_images"], arrays[f"{part}_labels"]) for part in ("train", "test")
        )
        num_classes = len(np.unique(train.labels))
        source = Source(train, test, num_classes, arrays["train_images"].shape[1:])
        return splits_in_memory(self, source, "the Fashion-MNIST subset")


def verified_subset() -> bytes:
    """Return the content of the file that has the subset.

    Raises SettingError("data") if the file is missing, or if its sha256 is not the one that is
    installed next to it.
    """
    try:
        content, checksum = SUBSET_FILE.read_bytes(), CHECKSUM_FILE.read_text().split()[0]
    except OSError as error:
        raise SettingError("data", f"the installation is incomplete: {error}") from error
    if hashlib.sha256(content).hexdigest() != checksum:
        raise SettingError("data", f"{SUBSET_FILE} is corrupt: its sha256 is not {checksum}")
    return content
