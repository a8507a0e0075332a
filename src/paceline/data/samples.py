"""Images by number, wherever they are: mapped, in the memory of one worker, or in files."""

from typing import Protocol

import torch
from torch import Tensor

from paceline.data.image_set import ImageSet
from paceline.data.share import RowFormat, Share
from paceline.data.source import Part

Labelled = tuple[Tensor, Tensor]


class Samples(Protocol):
    """Images that can be taken by their numbers in the training set."""

    def take(self, samples: Tensor) -> Labelled:
        """Return images, uint8 [B, C, H, W], and labels, int64 [B]."""
        ...


class HeldImages:
    """Images and labels of a share."""

    def __init__(self, share: Share) -> None:
        self._share = share

    def take(self, samples: Tensor) -> Labelled:
        images, labels = self._share.take(samples)
        return images, labels


class DecodedImages:
    """Images of files, decoded each time when they are taken."""

    def __init__(self, part: Part) -> None:
        self._part = part

    def take(self, samples: Tensor) -> Labelled:
        rows = samples.numpy()
        images = self._part.images[self._part.rows[rows]]
        return torch.from_numpy(images), torch.from_numpy(self._part.labels[rows])


def image_rows(images: ImageSet) -> RowFormat:
    """Return the format of a held image and its label."""
    return RowFormat([(torch.uint8, tuple(images.images.shape[1:])), (torch.int64, ())])
