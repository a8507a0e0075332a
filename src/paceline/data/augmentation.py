"""Augments whole batches, with random numbers that depend only on the seed and on positions.

The position of a sample is its place among all samples that the run draws. Hence K workers with
B/K images per batch train on exactly the images that one worker with B images per batch trains on.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from paceline.errors import SettingError
from paceline.random_bits import random_bits

if TYPE_CHECKING:
    from torch import Tensor


_TRIES = 10  # as torchvision, before the middle of the image is taken


class AbstractAugmentation(ABC):
    """Random transformation of the images of a batch."""

    @abstractmethod
    def __call__(self, images: Tensor, positions: Tensor, seed: int) -> Tensor:
        """Transform `images`, uint8 [B, C, H, W], to images of the same shape and type.

        `positions`, int64 [B]: place of each sample among all samples that the run draws.
        """


class CropAndFlip(AbstractAugmentation):
    """Pads each image with black, and cuts a random window of the image's size out of the result.

    `padding`: black pixels on each side. `flip`: mirror each image with probability 1/2. Raises
    SettingError("data.augmentation.padding") for a negative padding.
    """

    def __init__(self, padding: int, flip: bool) -> None:
        if padding < 0:
            raise SettingError("data.augmentation.padding", f"{padding} pixels, less than 0")
        self.padding = padding
        self.flip = flip

    def __call__(self, images: Tensor, positions: Tensor, seed: int) -> Tensor:
        import torch  # takes seconds, and settings are checked without it

        bits = random_bits(positions.numpy(), "crop and flip", seed)
        cropped = self._crop(images, bits)
        if self.flip:
            mirrored = _draw_below(bits, 32, 2).astype(bool)
            cropped[mirrored] = cropped[mirrored][..., ::-1]
        return torch.from_numpy(cropped)

    def _crop(self, images: Tensor, bits: np.ndarray) -> np.ndarray:
        from torch.nn.functional import pad

        padded = pad(images, [self.padding] * 4).numpy()
        windows = sliding_window_view(padded, images.shape[2:], axis=(2, 3))
        num_offsets = 2 * self.padding + 1
        top, left = _draw_below(bits, 0, num_offsets), _draw_below(bits, 16, num_offsets)
        return windows[np.arange(len(bits)), :, top, left]  # 3 times torch's speed


class RandomResizedCrop(AbstractAugmentation):
    """Cuts a random part out of each image, and resizes it to the image's shape.

    `scale`: least and greatest share of the image's area that the part may have. `ratio`: least and
    greatest width of the part divided by its height; its logarithm is uniform. `flip`: mirror each
    image with probability 1/2. This is torchvision's transformation of the same name (Szegedy 2014,
    arXiv:1409.4842), with the random numbers of `paceline.random_bits`.

    Raises SettingError if a lower bound is not above 0 or is above its upper bound, and for a share
    above 1.
    """

    def __init__(self, scale: tuple[float, float], ratio: tuple[float, float], flip: bool) -> None:
        for name, (least, most) in (("scale", scale), ("ratio", ratio)):
            if not 0 < least <= most:
                message = f"two numbers above 0 that rise are needed, not [{least}, {most}]"
                raise SettingError(f"data.augmentation.{name}", message)
        if scale[1] > 1:
            raise SettingError("data.augmentation.scale", f"{scale[1]} of an image's area")
        self.scale, self.ratio, self.flip = tuple(scale), tuple(ratio), flip

    def __call__(self, images: Tensor, positions: Tensor, seed: int) -> Tensor:
        import torch  # takes seconds, and settings are checked without it
        from torch.nn.functional import interpolate

        height, width = images.shape[2:]
        parts = self.windows(height, width, positions.numpy(), seed)
        resized = torch.empty_like(images)
        for image, (top, left, rows, columns), into in zip(images, parts, resized, strict=True):
            part = image[None, :, top : top + rows, left : left + columns]
            into.copy_(interpolate(part, (height, width), mode="bilinear", antialias=True)[0])
        if self.flip:
            bits = random_bits(positions.numpy(), "flip of a resized crop", seed)
            chosen = torch.from_numpy((bits >> np.uint64(63)).astype(bool))
            resized[chosen] = resized[chosen].flip(-1)
        return resized

    def windows(self, height: int, width: int, positions: np.ndarray, seed: int) -> np.ndarray:
        """Draw the part to cut out of each image: its top, left, rows and columns, int64 [B, 4]."""
        chosen = np.tile(self._middle(height, width), (len(positions), 1))
        undecided = np.ones(len(positions), dtype=bool)
        for number in range(_TRIES):
            drawn = self._draw(height, width, positions, seed, number)
            fits = undecided & (drawn >= 0).all(1) & (drawn[:, 2:] > 0).all(1)
            chosen[fits] = drawn[fits]
            undecided &= ~fits
        return chosen

    def _draw(
        self, height: int, width: int, positions: np.ndarray, seed: int, number: int
    ) -> np.ndarray:
        """Draw a part of each image; its top or left is negative if it does not fit the image."""
        bits = random_bits(positions, "resized crop", seed, number)
        share, shape, down, across = (_uniform(bits, shift) for shift in (0, 16, 32, 48))
        area = height * width * (self.scale[0] + share * (self.scale[1] - self.scale[0]))
        low, high = map(math.log, self.ratio)
        ratio = np.exp(low + shape * (high - low))
        rows, columns = np.rint(np.sqrt(area / ratio)), np.rint(np.sqrt(area * ratio))
        top, left = np.floor(down * (height - rows + 1)), np.floor(across * (width - columns + 1))
        top[rows > height], left[columns > width] = -1, -1
        return np.stack([top, left, rows, columns], axis=1).astype(np.int64)

    def _middle(self, height: int, width: int) -> tuple[int, int, int, int]:
        """Return the largest part around the image's middle whose `ratio` is within the bounds."""
        rows = min(height, round(width / self.ratio[0]))
        columns = min(width, round(height * self.ratio[1]))
        return (height - rows) // 2, (width - columns) // 2, rows, columns


def _uniform(bits: np.ndarray, shift: int) -> np.ndarray:
    """Return a number inside (0, 1) from the 16 bits that start at `shift`: float64 [B]."""
    return ((bits >> np.uint64(shift)).astype(np.uint16) + 0.5) / 2**16


def _draw_below(bits: np.ndarray, shift: int, limit: int) -> np.ndarray:
    """Draw numbers from 0 to limit - 1, int64 [B], from the 16 bits that start at `shift`."""
    sixteen = (bits >> np.uint64(shift)).astype(np.uint16).astype(np.int64)
    return (sixteen * limit) >> 16
