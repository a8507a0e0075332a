"""Images of a data set as it comes, and their split into training and validation images.

Images are arrays, or files that are decoded when they are indexed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from paceline.errors import SettingError
from paceline.random_bits import random_permutation

if TYPE_CHECKING:
    from torch import Tensor

_CHUNK = 512  # images at a time while copying


class Images(Protocol):
    """Images, uint8 [N, C, H, W], that can be indexed by an array of rows."""

    def __getitem__(self, rows: np.ndarray, /) -> np.ndarray: ...


@dataclass(frozen=True)
class Part:
    """Selection of images.

    `rows`: indices of the selected images in `images`. `labels`: labels of the selected images,
    int64, in the order of `rows`.
    """

    images: Images
    labels: np.ndarray
    rows: np.ndarray

    def take(self, samples: Tensor) -> tuple[Tensor, Tensor]:
        """Return images, decoded each time, and labels of the samples `samples`, int64 [B]."""
        import torch  # takes seconds, and settings are checked without it

        chosen = samples.numpy()
        images = self.images[self.rows[chosen]]
        return torch.from_numpy(images), torch.from_numpy(self.labels[chosen])

    def chunks(self) -> Iterator[np.ndarray]:
        """Yield the images in order, as uint8 [up to 512, C, H, W]."""
        for first in range(0, len(self.rows), _CHUNK):
            yield self.images[self.rows[first : first + _CHUNK]]


def whole(images: Images, labels: np.ndarray) -> Part:
    """Select all of `images`."""
    return Part(images, labels.astype(np.int64), np.arange(len(labels)))


@dataclass(frozen=True)
class Source:
    """Content of a data set as it comes.

    If `validation` is None, the validation images are taken out of `train`.
    """

    train: Part
    test: Part
    num_classes: int
    image_shape: tuple[int, ...]
    validation: Part | None = None

    def parts(self, num_validation: int, split_seed: int) -> dict[str, Part]:
        """Return the parts "train", "validation" and "test".

        `num_validation` and `split_seed` are not used if the source has a validation part.
        """
        train, validation = self.train, self.validation
        if validation is None:
            kept, held_out = stratified_split(train.labels, num_validation, split_seed)
            train, validation = _select(train, kept), _select(train, held_out)
        return {"train": train, "validation": validation, "test": self.test}


def _select(part: Part, chosen: np.ndarray) -> Part:
    return Part(part.images, part.labels[chosen], part.rows[chosen])


class ChannelStatistics:
    """Computes the exact mean and standard deviation of each channel: it counts the 256 values."""

    def __init__(self, num_channels: int) -> None:
        self._counts = np.zeros((num_channels, 256), dtype=np.int64)

    def add(self, images: np.ndarray) -> None:
        """Count the values of `images`, uint8 [N, C, H, W]."""
        for channel, counts in enumerate(self._counts):
            counts += np.bincount(images[:, channel].ravel(), minlength=256)

    def mean_and_std(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return the mean and the standard deviation per channel, on the scale 0 to 1.

        Raises SettingError("data.root") if a channel has the same value in all pixels.
        """
        shares = self._counts / self._counts.sum(axis=1, keepdims=True)
        values = np.arange(256) / 255
        mean = shares @ values
        std = np.sqrt((shares * (values - mean[:, None]) ** 2).sum(axis=1))
        if std.min() == 0:
            channel = int(std.argmin())
            raise SettingError("data.root", f"channel {channel} of all images has one value only")
        return tuple(mean.tolist()), tuple(std.tolist())


def stratified_split(labels: np.ndarray, num_held_out: int, seed: int) -> tuple[np.ndarray, ...]:
    """Divide images into those to train on and those held out; return the indices of both.

    Indices are sorted int64; each image is in exactly one of the two arrays. The same share of each
    class is held out, to within one image. Raises SettingError("data.num_validation") if no image
    is to be held out, or if a class would have no image left to train on.
    """
    classes, class_sizes = np.unique(labels, return_counts=True)
    check_held_out(num_held_out, len(labels), len(classes))
    held_out = _drawn(labels, _quotas(class_sizes, class_sizes - 1, num_held_out), "split", seed)
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)


def check_held_out(num_held_out: int, num_images: int, num_classes: int) -> None:
    """Raise SettingError("data.num_validation") if too few or too many images are held out."""
    largest = num_images - num_classes
    if not 1 <= num_held_out <= largest:
        message = f"{num_held_out} of {num_images} training images of {num_classes} classes "
        message += f"cannot be held out: 1 to {largest} can"
        raise SettingError("data.num_validation", message)


def curve_images(labels: np.ndarray, number: int | None) -> np.ndarray | None:
    """Choose the validation images for the scores before the end of a run; return their indices.

    `labels`: labels of all validation images. `number`: how many to choose, None for all; the
    result is then None. The indices are sorted int64 and the same in every run. The same share of
    each class is chosen, to within one image. Raises SettingError("measurement.curve_images") if
    there are fewer than `number` images.
    """
    if number is None:
        return None
    if number > len(labels):
        message = f"{number}, but there are {len(labels)} validation images"
        raise SettingError("measurement.curve_images", message)
    _, class_sizes = np.unique(labels, return_counts=True)
    return np.flatnonzero(_drawn(labels, _quotas(class_sizes, class_sizes, number), "curve", 0))


def _drawn(labels: np.ndarray, quotas: np.ndarray, *key: int | str) -> np.ndarray:
    """Draw images at random, of each class as many as its quota.

    Returns bool [len(labels)], True for the drawn images.
    """
    drawn = np.zeros(len(labels), dtype=bool)
    for label, quota in zip(np.unique(labels), quotas, strict=True):
        members = np.flatnonzero(labels == label)
        order = random_permutation(len(members), *key, int(label))
        drawn[members[order[:quota]]] = True
    return drawn


def _quotas(class_sizes: np.ndarray, most: np.ndarray, total: int) -> np.ndarray:
    """Apportion `total` to the classes in proportion to their sizes, by largest remainder.

    Returns the number for each class, int64 [classes], which is at most that class's `most`.
    """
    shares = class_sizes * (total / class_sizes.sum())
    quotas = np.minimum(np.floor(shares).astype(np.int64), most)
    while (missing := total - int(quotas.sum())) > 0:
        remainders = np.where(quotas < most, shares - quotas, -np.inf)
        quotas[np.argsort(-remainders, kind="stable")[:missing]] += 1
        quotas = np.minimum(quotas, most)
    return quotas
