"""Makes a batch by one indexing operation on all its images, then arithmetic on the whole batch."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from paceline.data.augmentation import AbstractAugmentation
from paceline.data.image_set import ImageSet
from paceline.data.order import AbstractOrder

Batch = tuple[Tensor, Tensor]


class Samples(Protocol):
    """Training samples that can be taken by their numbers in the training set.

    `take` returns images, uint8 [B, C, H, W], and labels, int64 [B].
    """

    def take(self, samples: Tensor) -> Sequence[Tensor]: ...


class Normalisation:
    """Maps pixels x, uint8 [B, C, H, W], to (x / 255 - mean) / std per channel, in `dtype`.

    It subtracts, then multiplies. Both operations are exactly rounded, so that the result for an
    image does not depend on the other images of its batch.
    """

    def __init__(self, mean: Sequence[float], std: Sequence[float], dtype: torch.dtype) -> None:
        self.shift = (255 * torch.tensor(mean, dtype=torch.float64)).to(dtype)[:, None, None]
        self.scale = (1 / (255 * torch.tensor(std, dtype=torch.float64))).to(dtype)[:, None, None]

    def to(self, device: torch.device) -> "Normalisation":
        """Return the same for images on a device."""
        other = copy.copy(self)
        other.shift, other.scale = self.shift.to(device), self.scale.to(device)
        return other

    def __call__(self, images: Tensor) -> Tensor:
        return images.to(self.shift.dtype).sub_(self.shift).mul_(self.scale)


class AbstractBatches(ABC):
    """Base class of the batches of one worker, whose number is known."""

    def __init__(self, num_batches: int) -> None:
        self._num_batches = num_batches

    def __len__(self) -> int:
        return self._num_batches

    def __iter__(self) -> Iterator[Any]:
        return self.beginning_at(0)

    @abstractmethod
    def beginning_at(self, first: int) -> Iterator[Any]:
        """Iterate from batch `first` on."""


class LazyBatches(AbstractBatches):
    """Batches that `draw(first)` yields from batch `first` on."""

    def __init__(self, num_batches: int, draw: Callable[[int], Iterator[Any]]) -> None:
        super().__init__(num_batches)
        self._draw = draw

    def beginning_at(self, first: int) -> Iterator[Any]:
        return self._draw(first)


class WorkerBatches(AbstractBatches):
    """Batches of one worker, with the samples that `order` gives to this worker.

    Batches can be indexed by their number, so that a virtual clock can draw any batch at any time.
    A batch is a pair of normalised images [B, C, H, W] and labels, int64 [B]. Indexing with
    `num_batches` or more raises IndexError.
    """

    def __init__(
        self,
        samples: Samples,
        order: AbstractOrder,
        normalise: Normalisation,
        *,
        worker: int,
        num_batches: int,
        augmentation: AbstractAugmentation | None = None,
    ) -> None:
        super().__init__(num_batches)
        if not 0 <= worker < order.num_workers:
            raise ValueError(f"worker {worker} of {order.num_workers}")
        self._samples, self._order, self._worker = samples, order, worker
        self._normalise, self._augmentation = normalise, augmentation

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
    images: ImageSet, batch_size: int, normalise: Normalisation, chosen: Tensor | None = None
) -> Iterator[Batch]:
    """Yield batches that contain every image once, in the order of `images`.

    The last batch may be smaller. `chosen`: indices of the images to use, int64; None for all. A
    batch is a pair of normalised images [B, C, H, W] and labels, int64 [B].
    """
    chosen = torch.arange(len(images)) if chosen is None else chosen
    for some in chosen.split(batch_size):
        pixels, labels = images.take(some)
        yield normalise(pixels), labels
