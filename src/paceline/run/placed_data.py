"""Placement of a training set: which samples this process holds, how batches reach its worker."""

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Protocol

import numpy as np
import torch

from paceline.clock.training_strategy import SizedBatches
from paceline.data.batches import LazyBatches
from paceline.data.order import (
    AbstractOrder,
    PartitionedOrder,
    SampleStream,
    StreamOrder,
    check_share,
)
from paceline.data.placement import Placement
from paceline.data.shuffle import DataTraffic, RowFormat, Share
from paceline.exchange.group_wire import SampleExchange
from paceline.record.point import Point

Pass = Callable[[], Iterable[Any]]  # starts a new pass over (images, labels)


@dataclass(frozen=True)
class Reading:
    """Settings by which a run reads its data.

    `batch_size`: images per worker and step. `evaluation_batch_size`: images that are scored at a
    time. `placement`: where samples are held, and how they move among workers. `dtype`: type of
    image values. `worker`: worker of this process; None if one process draws batches for all
    workers. `curve_images`: number of validation images on which all snapshots except the last are
    scored; None for all validation images.
    """

    num_workers: int
    batch_size: int
    seed: int
    evaluation_batch_size: int
    placement: Placement
    dtype: torch.dtype = torch.float32
    worker: int | None = None
    curve_images: int | None = None


def reading_of(point: Point) -> Reading:
    return Reading(
        num_workers=point.workers,
        batch_size=point.batch_size,
        seed=point.seed,
        evaluation_batch_size=point.measurement.evaluation_batch_size,
        placement=point.placement,
        dtype=torch.float64 if point.training.precision == "64-true" else torch.float32,
        curve_images=point.measurement.curve_images,
    )


class IndexedBatches(SizedBatches, Protocol):
    """Batches of one worker, each of which is drawn when it is indexed."""

    def __getitem__(self, n: int, /) -> Any: ...


class AbstractTrainingSet(ABC):
    """Training samples. `share`: the samples that `hold` has copied into memory, or None."""

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
        """Return some samples as rows of bytes, in the format `row_format`."""

    @abstractmethod
    def batches(self, order: AbstractOrder, worker: int, num_batches: int) -> IndexedBatches:
        """Return the first `num_batches` batches of a worker."""

    def together(
        self, order: AbstractOrder, numbers: Sequence[tuple[int, int]], device: torch.device
    ) -> Any:
        """Return batches by worker and number, stacked, gathered on a GPU from a copy of the images
        there; None if they have to be drawn one by one.
        """
        return None

    def hold(self, samples: np.ndarray, spare: int) -> None:
        """Copy these samples into memory; all later batches consist of them.

        `spare`: number of samples for which memory is kept free, for exchanges with other workers.
        """
        self.share = Share(samples, self.read, self.row_format, len(self), spare)


class PlacedData:
    """Data of a run, read by `reading`.

    `validation()`, `curve()` and `test()` start a new pass over batches (images, labels) of these
    parts; `curve()` has the validation images on which all snapshots except the last are scored.
    `rehearsed`: passes over a few validation and test images that stand for all.
    `traffic`: order in which samples are drawn, and how they move among workers. Raises
    SettingError("batch_size") if the batch size exceeds a worker's share of the images.
    """

    def __init__(
        self, training: AbstractTrainingSet, reading: Reading, evaluations: Sequence[Pass]
    ) -> None:
        self._training, self._reading = training, reading
        self.num_train = len(training)
        self.validation, self.curve, self.test, *self.rehearsed = evaluations
        placement, sizes = reading.placement, (reading.num_workers, reading.batch_size)
        stream = SampleStream(self.num_train, reading.seed)
        if placement.partitioned:
            by_class = training.labels() if placement.partition == "by_class" else None
            every = placement.shuffle_every
            order = PartitionedOrder(stream, *sizes, shuffle_every=every, labels=by_class)
        else:
            order = StreamOrder(stream, *sizes)
        check_share(*sizes, order.smallest_share, self.num_train)
        self._indexed = cache(partial(training.batches, order, num_batches=sys.maxsize))
        self._hold(order)
        sample_bytes = training.row_format.num_bytes if placement.shuffle_every else 0
        self.traffic = DataTraffic(order, sample_bytes)

    def train(
        self, worker: int, num_batches: int, begin: Callable[[], None] = lambda: None
    ) -> SizedBatches:
        """Return the first `num_batches` batches of a worker.

        `begin()` is called each time after processes have exchanged samples.
        """
        order, shuffled = self.traffic.order, self._reading.placement.shuffle_every
        batches = self._training.batches(order, worker, num_batches)
        if self._reading.worker is None or not shuffled:
            return batches
        exchange = SampleExchange(order.num_workers)
        return LazyBatches(
            num_batches, lambda first: self._shuffled(batches, first, worker, exchange, begin)
        )

    def batch(self, worker: int, n: int) -> Any:
        return self._indexed(worker)[n]

    def together(self, numbers: Sequence[tuple[int, int]], device: torch.device) -> Any:
        """Return several batches at once, or None, as `AbstractTrainingSet.together` does."""
        return self._training.together(self.traffic.order, numbers, device)

    def _hold(self, order: AbstractOrder) -> None:
        """Copy the samples that this process draws from memory into its memory."""
        worker = self._reading.worker
        if isinstance(order, PartitionedOrder) and worker is not None:
            self._training.hold(order.share(worker, 0), order.num_workers - 1)
        elif self._reading.placement.store == "memory":
            self._training.hold(np.arange(self.num_train), 0)

    def _shuffled(
        self,
        batches: IndexedBatches,
        first: int,
        worker: int,
        exchange: SampleExchange,
        begin: Callable[[], None],
    ) -> Iterator[Any]:
        """Yield batches of a worker that exchanges samples with other workers when a period begins,
        and in each period draws from another share of the training set. The batch number `first`
        may belong to a later period than the samples that the worker holds.
        """
        traffic, share, period = self.traffic, self._training.share, 0
        assert share is not None
        for n in range(first, len(batches)):
            if (following := traffic.order.period(n)) != period:
                started = time.perf_counter()
                parts = traffic.shuffle(period, following).exchange(worker, share)
                traffic.moved.shuffle_bytes += exchange.carry_out(parts)
                traffic.moved.shuffle_seconds += time.perf_counter() - started
                begin()
                period = following
            yield batches[n]
