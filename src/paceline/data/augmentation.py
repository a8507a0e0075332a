"""Augments whole batches, with random numbers that depend only on the seed and on positions.

The position of a sample is its place among all samples that the run draws. Hence K workers with
B/K images per batch train on exactly the images that one worker with B images per batch trains on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from paceline.errors import SettingError
from paceline.random_bits import random_bits

if TYPE_CHECKING:
    from torch import Tensor


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


def _draw_below(bits: np.ndarray, shift: int, limit: int) -> np.ndarray:
    """Draw numbers from 0 to limit - 1, int64 [B], from the 16 bits that start at `shift`."""
    sixteen = (bits >> np.uint64(shift)).astype(np.uint16).astype(np.int64)
    return (sixteen * limit) >> 16
