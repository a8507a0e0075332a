"""Order of data: which samples of the training set are in the n-th batch of each worker."""

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
)

from paceline.errors import SettingError
from paceline.random_bits import random_permutation

_KEPT_PERMUTATIONS = 8  # workers far apart on a virtual clock read different epochs


@dataclass(eq=False)
class SampleStream:
    """Endless sequence of samples: seeded permutations of the training set, one after the other.

    Each permutation is one epoch. A batch may span the end of one permutation and the start of the
    next. The stream depends on (num_samples, seed) only, so that all processes have the same one.
    """

    num_samples: int
    seed: int

    def __post_init__(self) -> None:
        if self.num_samples < 1:
            raise ValueError(f"a stream needs samples, not {self.num_samples}")
        self._permutations = Recent(_KEPT_PERMUTATIONS)

    def indices(self, first: int, count: int) -> Tensor:
        """Return the samples at positions first to first + count - 1 of the stream: int64 [count].

        A sample is given by its index in the training set.
        """
        return part_of_passes(self.permutation, self.num_samples, first, count)

    def permutation(self, epoch: int) -> Tensor:
        """Return the order of an epoch: int64 [num_samples]."""
        key = ("order", self.seed, epoch)
        return self._permutations.get(
            epoch, lambda: torch.from_numpy(random_permutation(self.num_samples, *key))
        )


def part_of_passes(
    one_pass: Callable[[int], Tensor], length: int, first: int, count: int
) -> Tensor:
    """Return the values at positions first to first + count - 1 of passes one after the other.

    `one_pass(number)` returns the values of pass `number` = 0, 1, ..., [length].
    """
    number, offset = divmod(first, length)
    pieces = [one_pass(number)[offset : offset + count]]
    while (missing := count - sum(map(len, pieces))) > 0:
        number += 1
        pieces.append(one_pass(number)[:missing])
    return torch.cat(pieces) if len(pieces) > 1 else pieces[0]


class Recent:
    """Cache of the `limit` values that were asked for most recently, by key.

    When a cache is sent to another process, that process gets an empty one.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: OrderedDict[Hashable, Any] = OrderedDict()

    def __reduce__(self) -> tuple[Any, ...]:
        return Recent, (self._limit,)

    def get(self, key: Hashable, compute: Callable[[], Any]) -> Any:
        """Return the value of `key`; if it is not in the cache, call `compute` for it."""
        if key not in self._kept:
            self._kept[key] = compute()
            if len(self._kept) > self._limit:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key]


# Samples, int64, of each worker; together they are the whole set
Shares = list[np.ndarray]


@dataclass(eq=False)
class AbstractOrder(ABC):
    """Base class of the orders of data; an order is the same in all processes.

    `stream`: source of the order. `batch_size`: number of samples of one worker in one step.
    """

    stream: SampleStream
    num_workers: int
    batch_size: int

    @property
    def num_samples(self) -> int:
        return self.stream.num_samples

    def first_position(self, worker: int, n: int) -> int:
        """Return the place of a worker's n-th batch among all samples that the run draws."""
        return (n * self.num_workers + worker) * self.batch_size

    @property
    def smallest_share(self) -> int:
        """Smallest number of samples that any worker draws from in an epoch."""
        return self.num_samples // self.num_workers

    @abstractmethod
    def indices(self, worker: int, n: int) -> Tensor:
        """Return the samples of a worker's n-th batch: int64 [batch_size]."""

    def period(self, n: int) -> int:
        """Return how often workers have exchanged samples before their n-th batches."""
        return 0

    def times_drawn(self, batches: Iterable[tuple[int, int]]) -> np.ndarray:
        """Return how often each sample is in `batches`: int32 [num_samples].

        `batches`: pairs (worker, n), each of which stands for the worker's n-th batch.
        """
        counts = np.zeros(self.num_samples, dtype=np.int32)
        for worker, n in batches:
            np.add.at(counts, self.indices(worker, n).numpy(), 1)
        return counts


class StreamOrder(AbstractOrder):
    """Order for a replicated set, of which every worker can read all samples.

    Batch n of worker k is batch n * num_workers + k of the stream.
    """

    def indices(self, worker: int, n: int) -> Tensor:
        return self.stream.indices(self.first_position(worker, n), self.batch_size)


@dataclass(eq=False)
class PartitionedOrder(AbstractOrder):
    """Order for a partitioned set: workers hold shares of it, and draw from their shares only.

    In a round, each worker draws one batch. A period lasts `shuffle_every` epochs of the run; at
    its start the workers exchange samples. Period e begins with the first round for which the run
    has drawn the samples of e periods. To make the shares of a period, one permutation of the
    stream is dealt to the workers, a batch to each in turn. Samples that do not fill a last round
    are dealt as evenly as possible. With `labels` [num_samples], the shares of period 0 are instead
    consecutive parts of the set sorted by label.

    In a period a worker passes over its share first in the order in which it was dealt, then in
    seeded permutations. Shares sorted by label are permuted in the first pass as well. A batch may
    span two passes.

    If an epoch is a whole number of rounds, the order of a set that is shuffled every epoch is that
    of a replicated set. Otherwise a worker draws in a period up to a batch more or less than
    its share has.
    """

    shuffle_every: int | None = field(default=None, kw_only=True)
    labels: np.ndarray | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        labels = self.labels
        self._round = self.num_workers * self.batch_size
        rest = self.num_samples % self._round
        more = np.arange(self.num_workers) < rest % self.num_workers
        dealt = self.num_samples // self._round * self.batch_size
        self.sizes: list[int] = (dealt + rest // self.num_workers + more).tolist()
        self._by_class: Shares | None = None
        if labels is not None:
            by_class = np.argsort(labels, kind="stable")
            self._by_class = np.split(by_class, np.cumsum(self.sizes)[:-1])
        self._shares, self._passes = Recent(2), Recent(2 * self.num_workers)

    @property
    def smallest_share(self) -> int:
        return min(self.sizes)

    def indices(self, worker: int, n: int) -> Tensor:
        period, size = self.period(n), self.sizes[worker]
        first = (n - self.first_batch(period)) * self.batch_size
        return part_of_passes(
            lambda number: self._pass(worker, period, number), size, first, self.batch_size
        )

    def period(self, n: int) -> int:
        if self.shuffle_every is None:
            return 0
        return self.first_position(0, n) // (self.shuffle_every * self.num_samples)

    def first_batch(self, period: int) -> int:
        """Return the number of a worker's first batch in a period."""
        samples = period * (self.shuffle_every or 0) * self.num_samples
        return -(-samples // self.first_position(0, 1))

    def share(self, worker: int, period: int) -> np.ndarray:
        """Return the samples that a worker holds in a period: int64, in the order of dealing."""
        return self.shares(period)[worker]

    def shares(self, period: int) -> Shares:
        """Return the shares of all workers in a period."""
        return self._shares.get(period, lambda: self._dealt(period))

    def _dealt(self, period: int) -> Shares:
        if period == 0 and self._by_class is not None:
            return self._by_class
        order = self.stream.permutation(period * (self.shuffle_every or 0)).numpy()
        whole = self.num_samples // self._round
        rounds = order[: whole * self._round].reshape(whole, self.num_workers, self.batch_size)
        rest = np.array_split(order[whole * self._round :], self.num_workers)
        return [np.append(rounds[:, worker], rest[worker]) for worker in range(self.num_workers)]

    def _pass(self, worker: int, period: int, number: int) -> Tensor:
        def drawn() -> Tensor:
            share = self.share(worker, period)
            if number > 0 or (period == 0 and self._by_class is not None):
                key = ("share", self.stream.seed, worker, period, number)
                share = share[random_permutation(len(share), *key)]
            return torch.from_numpy(share)

        return self._passes.get((worker, period, number), drawn)


def check_share(workers: int, batch_size: int, share: int, num_samples: int) -> None:
    """Raise SettingError("batch_size") if a batch is larger than the `share` of a worker."""
    if batch_size > share:
        message = f"{batch_size} is more than a worker's share of {share} images "
        raise SettingError("batch_size", f"{message}({num_samples} over workers={workers})")


def is_map_style(loader: Any) -> bool:
    """Return True for a DataLoader whose samples have numbers."""
    return isinstance(loader, DataLoader) and not isinstance(loader.dataset, IterableDataset)


def check_sampler(loader: Any) -> None:
    """Raise SettingError("data") for a DataLoader whose sampler would not be obeyed.

    Paceline replaces the sampler by its own order of data. That is right for a sampler that draws
    all samples once each, in any order, and wrong for any other sampler. A loader without batches
    of its own (batch_size=None) passes, since it has a sampler as well.
    """
    batches, sampler, every = loader.batch_sampler, loader.sampler, len(loader.dataset)
    if type(batches) is BatchSampler:
        sampler = batches.sampler
    elif batches is not None:
        sampler = batches
    if type(sampler) is SequentialSampler:
        return
    if type(sampler) is RandomSampler and not sampler.replacement and sampler.num_samples == every:
        return
    message = f"{type(sampler).__name__} chooses samples, and all are drawn in the order of the run"
    raise SettingError("data", message + ": torch.utils.data.Subset is needed instead")
