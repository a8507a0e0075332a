"""Makes batches by indexing: one gather of bytes, then arithmetic on the batch as a whole."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from paceline.data.augmentation import AbstractAugmentation
from paceline.data.image_set import ImageSet
from paceline.data.order import AbstractOrder
from paceline.data.shuffle import RowFormat
from paceline.data.source import Part

Batch = tuple[Tensor, Tensor]


class Samples(Protocol):
    """Images, uint8 [B, C, H, W], and labels, int64 [B], by their numbers in the training set."""

    def take(self, samples: Tensor) -> Sequence[Tensor]: ...


class DecodedImages:
    """Images in files that are decoded each time an image is needed."""

    def __init__(self, part: Part) -> None:
        self._part = part

    def take(self, samples: Tensor) -> Batch:
        rows = samples.numpy()
        images = self._part.images[self._part.rows[rows]]
        return torch.from_numpy(images), torch.from_numpy(self._part.labels[rows])


def image_rows(images: ImageSet) -> RowFormat:
    """Return the format in which an image and its label are held in memory."""
    return RowFormat([(torch.uint8, tuple(images.images.shape[1:])), (torch.int64, ())])


class Normalisation:
    """Maps pixels x, uint8 [B, C, H, W], to (x / 255 - mean) / std per channel, in `dtype`.

    Each of its two operations is exactly rounded, so that an image's result does not depend on the
    other images of its batch.
    """

    def __init__(self, mean: Sequence[float], std: Sequence[float], dtype: torch.dtype) -> None:
        self.shift = (255 * torch.tensor(mean, dtype=torch.float64)).to(dtype)[:, None, None]
        self.scale = (1 / (255 * torch.tensor(std, dtype=torch.float64))).to(dtype)[:, None, None]

    def __call__(self, images: Tensor) -> Tensor:
        return images.to(self.shift.dtype).sub_(self.shift).mul_(self.scale)


class AbstractBatches(ABC):
    """A known number of batches of one worker."""

    def __init__(self, num_batches: int) -> None:
        self._num_batches = num_batches

    def __len__(self) -> int:
        return self._num_batches

    def __iter__(self) -> Iterator[Any]:
        return self.beginning_at(0)

    @abstractmethod
    def beginning_at(self, first: int) -> Iterator[Any]:
        """Iterate from batch `first` on."""


class WorkerBatches(AbstractBatches):
    """Batches of one worker, in the order of data.

    They are indexed by their number, so that a virtual clock can draw any of them. A batch is a
    pair of normalised images, `dtype` [B, C, H, W], and labels, int64 [B]. Indexing raises
    IndexError from `num_batches` on.
    """

    def __init__(
        self,
        samples: Samples,
        order: AbstractOrder,
        *,
        worker: int,
        num_batches: int,
        mean: Sequence[float],
        std: Sequence[float],
        augmentation: AbstractAugmentation | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__(num_batches)
        if not 0 <= worker < order.num_workers:
            raise ValueError(f"worker {worker} of {order.num_workers}")
        self._samples, self._order, self._worker = samples, order, worker
        self._normalise = Normalisation(mean, std, dtype)
        self._augmentation = augmentation

    def __getitem__(self, n: int) -> Batch:
        if not 0 <= n < self._num_batches:
            raise IndexError(f"batch {n} of {self._num_batches}")
        order = self._order
        images, labels = self._samples.take(order.indices(self._worker, n))
        if self._augmentation is not None:
            first = order.first_position(self._worker, n)
            positions = torch.arange(first, first + order.batch_size)
            images = self._augmentation(images, positions, order.stream.seed)
        return self._normalise(images), labels

    def beginning_at(self, first: int) -> Iterator[Batch]:
        return (self[n] for n in range(first, self._num_batches))


def evaluation_batches(
    images: ImageSet,
    batch_size: int,
    mean: Sequence[float],
    std: Sequence[float],
    dtype: torch.dtype,
    chosen: Tensor | None = None,
) -> Iterator[Batch]:
    """Yield every image once, in the order of the set; the last batch may be smaller.

    `chosen`: int64, the images to yield instead of all. A batch is a pair of normalised images,
    `dtype` [B, C, H, W], and labels, int64 [B].
    """
    normalise = Normalisation(mean, std, dtype)
    batches: Iterable[Batch]
    if chosen is None:
        parts = (images.images.split(batch_size), images.labels.split(batch_size))
        batches = zip(*parts, strict=True)
    else:
        batches = (images.take(some) for some in chosen.split(batch_size))
    for pixels, labels in batches:
        yield normalise(pixels), labels
