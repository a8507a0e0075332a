"""Training set as one process reads it: as it comes, or a part of it in the process's memory."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import torch

from paceline.data.augmentation import AbstractAugmentation
from paceline.data.batches import Samples, WorkerBatches, image_rows
from paceline.data.image_set import ImageSet, Splits
from paceline.data.order import AbstractOrder
from paceline.data.share import RowFormat, Share


class IndexedBatches(Protocol):
    """Batches of one worker, each drawn when it is indexed."""

    def __len__(self) -> int: ...

    def __getitem__(self, n: int, /) -> Any: ...

    def __iter__(self) -> Iterator[Any]: ...

    def beginning_at(self, first: int) -> Iterator[Any]: ...


class AbstractTrainingSet(ABC):
    """Samples to train on. `share`: those in the memory of this process, None before `hold`."""

    share: Share | None = None

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def labels(self) -> np.ndarray:
        """Return the labels of all samples: int64 [N]."""

    @property
    @abstractmethod
    def row_format(self) -> RowFormat:
        """Format in which a sample is held and sent."""

    @abstractmethod
    def read(self, samples: np.ndarray) -> torch.Tensor:
        """Return the rows of some samples."""

    @abstractmethod
    def batches(self, order: AbstractOrder, worker: int, num_batches: int) -> IndexedBatches:
        """Return the first batches of a worker."""

    def hold(self, samples: np.ndarray, spare: int) -> None:
        """Copy some samples into memory; from now on all batches are of them."""
        self.share = Share(samples, self.read, self.row_format, spare)


class TrainingImages(AbstractTrainingSet):
    """Training images of one of the project's data sets. `samples`: where they are read from."""

    def __init__(
        self,
        splits: Splits,
        samples: Samples,
        augmentation: AbstractAugmentation | None,
        dtype: torch.dtype,
    ) -> None:
        self._images: ImageSet | None = splits.train
        self._len, self._format = len(splits.train), image_rows(splits.train)
        self._samples, self._statistics = samples, (splits.mean, splits.std)
        self._augmentation, self._dtype = augmentation, dtype

    def __len__(self) -> int:
        return self._len

    def labels(self) -> np.ndarray:
        assert self._images is not None
        return self._images.labels.numpy()

    @property
    def row_format(self) -> RowFormat:
        return self._format

    def read(self, samples: np.ndarray) -> torch.Tensor:
        assert self._images is not None
        taken = self._images.opened_again().take(torch.from_numpy(samples))
        return self._format.pack(*taken)

    def hold(self, samples: np.ndarray, spare: int) -> None:
        super().hold(samples, spare)
        assert self.share is not None
        self._samples = self.share
        self._images = None  # the rest is given back

    def batches(self, order: AbstractOrder, worker: int, num_batches: int) -> WorkerBatches:
        mean, std = self._statistics
        return WorkerBatches(
            self._samples,
            order,
            worker=worker,
            num_batches=num_batches,
            mean=mean,
            std=std,
            augmentation=self._augmentation,
            dtype=self._dtype,
        )
