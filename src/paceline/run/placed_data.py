"""Placement of a training set: what this process holds, and how batches come to its worker."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import torch

from paceline.clock.training_strategy import SizedBatches
from paceline.data.order import PartitionedOrder, SampleStream, order_of
from paceline.data.placement import Placement
from paceline.data.shuffle import DataTraffic
from paceline.errors import SettingError
from paceline.exchange.sample_exchange import NodeFeed, SampleExchange
from paceline.run.training_set import AbstractTrainingSet, IndexedBatches


@dataclass(frozen=True)
class Reading:
    """Settings by which a run reads its data.

    `batch_size`: images per worker and step. `dtype`: type of image values. `worker`: worker of
    this process; None if one process draws for all. `curve_images`: number of validation images on
    which all snapshots but the last are scored; None for all.
    """

    num_workers: int
    batch_size: int
    seed: int
    evaluation_batch_size: int
    placement: Placement
    dtype: torch.dtype = torch.float32
    worker: int | None = None
    curve_images: int | None = None


@dataclass(frozen=True)
class PointData:
    """Data of a run.

    `train(worker, num_batches)` iterates over the first batches of a worker; `batch(worker, n)`
    returns one of them. `validation()`, `curve()` and `test()` start a new pass over (images,
    labels): `curve()` over those validation images on which all snapshots but the last are scored.
    `traffic`: order of the data, and how they move among workers.
    """

    num_train: int
    traffic: DataTraffic
    train: Callable[..., Any]
    batch: Callable[[int, int], Any]
    validation: Callable[[], Iterable[Any]]
    curve: Callable[[], Iterable[Any]]
    test: Callable[[], Iterable[Any]]


class PlacedData:
    """Batches of a run, by `reading`; see PointData.

    Raises SettingError("batch_size") if it exceeds the share of a worker.
    """

    def __init__(self, training: AbstractTrainingSet, reading: Reading) -> None:
        self._training, self._reading = training, reading
        stream = SampleStream(len(training), reading.seed)
        placement, sizes = reading.placement, (reading.num_workers, reading.batch_size)
        self.order = order_of(placement, stream, *sizes, training.labels)
        self._check_share()
        self._indexed = cache(partial(training.batches, self.order, num_batches=sys.maxsize))
        self._feed: NodeFeed | None = None
        fed = placement.feed == "first_of_node"
        if fed and reading.worker is not None:
            self._feed = NodeFeed(reading.worker, reading.num_workers)
        self._hold()
        self.traffic = DataTraffic(
            self.order,
            training.row_format.num_bytes if placement.shuffle_every else 0,
            _num_bytes(self.batch(0, 0)) if fed and self._feed is None else 0,
        )

    def train(
        self, worker: int, num_batches: int, begin: Callable[[], None] = lambda: None
    ) -> SizedBatches:
        """Return the first batches of a worker; `begin()` is called after all have met for one."""
        batches = self._training.batches(self.order, worker, num_batches)
        if self._feed is not None:
            return _FedBatches(num_batches, self.batch, self._feed, self.traffic, begin)
        if self._reading.worker is None or not self._reading.placement.shuffle_every:
            return batches
        assert self._training.share is not None
        return _ShuffledBatches(batches, self._training, self.traffic, worker, begin)

    def batch(self, worker: int, n: int) -> Any:
        """Return the n-th batch of a worker."""
        return self._indexed(worker)[n]

    def _hold(self) -> None:
        """Copy into memory what the worker of this process draws from there."""
        worker, placement = self._reading.worker, self._reading.placement
        draws = self._feed is None or self._feed.is_first
        if isinstance(self.order, PartitionedOrder) and worker is not None:
            self._training.hold(self.order.share(worker, 0), self.order.members - 1)
        elif placement.store == "memory" and draws:
            self._training.hold(np.arange(len(self._training)), 0)

    def _check_share(self) -> None:
        share, size = self.order.smallest_share, self._reading.batch_size
        if size > share:
            total, workers = len(self._training), self._reading.num_workers
            message = f"{size} is more than a worker's share of {share} images "
            raise SettingError("batch_size", f"{message}({total} over workers={workers})")


class _ShuffledBatches:
    """Batches of one worker's share, which is exchanged whenever a period begins."""

    def __init__(
        self,
        batches: IndexedBatches,
        training: AbstractTrainingSet,
        traffic: DataTraffic,
        worker: int,
        begin: Callable[[], None],
    ) -> None:
        order = traffic.order
        assert isinstance(order, PartitionedOrder)
        assert training.share is not None
        self._batches, self._share, self._traffic = batches, training.share, traffic
        self._begin = begin
        self._copy, self._member = divmod(worker, order.members)
        first = self._copy * order.members
        self._exchange = SampleExchange(range(first, first + order.members))

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Any]:
        return self.beginning_at(0)

    def beginning_at(self, first: int) -> Iterator[Any]:
        """Iterate from batch `first` on, which may be of a later period than what is held."""
        period = 0
        for n in range(first, len(self)):
            if (next_period := self._traffic.order.period(n)) != period:
                self._shuffle(period, next_period)
                period = next_period
            yield self._batches[n]

    def _shuffle(self, before: int, after: int) -> None:
        started, moved = time.perf_counter(), self._traffic.moved
        shuffle = self._traffic.shuffle(self._copy, before, after)
        parts = shuffle.exchange(self._member, self._share)
        moved.shuffle_bytes += self._exchange.carry_out(parts)
        moved.shuffle_seconds += time.perf_counter() - started
        self._begin()


class _FedBatches:
    """Batches of one worker, which the first worker of its node draws for it."""

    def __init__(
        self,
        num_batches: int,
        draw: Callable[[int, int], Any],
        feed: NodeFeed,
        traffic: DataTraffic,
        begin: Callable[[], None],
    ) -> None:
        self._num_batches, self._draw, self._feed = num_batches, draw, feed
        self._traffic, self._begin = traffic, begin

    def __len__(self) -> int:
        return self._num_batches

    def __iter__(self) -> Iterator[Any]:
        return self.beginning_at(0)

    def beginning_at(self, first: int) -> Iterator[Any]:
        """Iterate from batch `first` on."""
        for n in range(first, len(self)):
            drawing = self._feed.workers if self._feed.is_first else []
            batch, sent = self._feed.scatter([self._draw(worker, n) for worker in drawing])
            self._traffic.moved.feed_bytes += sent
            self._begin()
            yield batch


def _num_bytes(batch: Any) -> int:
    return sum(part.nbytes for part in batch)
