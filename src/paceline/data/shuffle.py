"""Shuffle of a partitioned set: all workers that hold a copy exchange samples with each other.

Kumar 2017 (arXiv:1711.00705) shuffles data in memory by an all-to-all among learners. Of a random
shuffle over p workers, a sample leaves its worker with probability 1 - 1/p. A worker needs its
share, a buffer, and for the order of all samples about 64 bytes a sample of the set.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from torch import Tensor

from paceline.data.order import AbstractOrder, PartitionedOrder, Shares
from paceline.data.placement import DataMoved
from paceline.data.share import Share, mapped_rows

BUFFER_BYTES = 2**24  # of a worker, for what it sends and what it receives


class Part(NamedTuple):
    """Part of an exchange, as one member sees it.

    `going`, `coming`: rows for all members in order, and room for those from all, uint8 [rows,
    bytes of a row]. `sent`, `received`: number of rows for each member, and from each.
    """

    going: Tensor
    coming: Tensor
    sent: list[int]
    received: list[int]


class Shuffle:
    """Exchange by which a copy's shares become others; each sample is sent at most once.

    `before`, `after`: shares of all members, of the same sizes. `row_bytes`: bytes of a sample.
    """

    def __init__(
        self, before: Shares, after: Shares, row_bytes: int, buffer_bytes: int = BUFFER_BYTES
    ) -> None:
        self._members = len(before)
        self._before, self._after = _holders(before), _holders(after)
        pairs = self._before * self._members + self._after
        counts = np.bincount(pairs, minlength=self._members**2)
        self.moved = counts.reshape(self._members, self._members)  # samples, from and to
        np.fill_diagonal(self.moved, 0)
        self.row_bytes = row_bytes
        most = max(self.moved.sum(0) + self.moved.sum(1), default=0) * row_bytes
        self.num_parts = -(-int(most) // buffer_bytes)

    def exchange(self, member: int, share: Share) -> Iterator[Part]:
        """Exchange the samples of a member in parts, each of a buffer at most.

        The caller must fill `coming` of each part before it asks for the next.
        """
        others = range(self._members)
        leaving = [self._samples(member, other) for other in others]
        entering = [self._samples(other, member) for other in others]
        parts = [
            ([self._cut(s, part) for s in leaving], [self._cut(s, part) for s in entering])
            for part in range(self.num_parts)
        ]
        going = self._room(sent for sent, _ in parts)
        coming = self._room(received for _, received in parts)
        for sent, received in parts:
            sizes, sizes_received = [*map(len, sent)], [*map(len, received)]
            part = Part(going[: sum(sizes)], coming[: sum(sizes_received)], sizes, sizes_received)
            share.give(np.concatenate(sent), part.going)
            yield part
            share.accept(np.concatenate(received), part.coming)
        share.settle()

    def _room(self, parts: Iterable[list[np.ndarray]]) -> Tensor:
        """Return room for the largest part, which all of them use."""
        most = max((sum(map(len, part)) for part in parts), default=0)
        return mapped_rows(most, self.row_bytes)

    def _samples(self, sender: int, receiver: int) -> np.ndarray:
        """List the samples that one member sends to another, none to itself."""
        if sender == receiver:
            return np.empty(0, dtype=np.int64)
        return np.flatnonzero((self._before == sender) & (self._after == receiver))

    def _cut(self, samples: np.ndarray, part: int) -> np.ndarray:
        """Cut what goes from one member to another in equal parts.

        Rounding down, a member has never received p samples more than it has sent.
        """
        first, last = (len(samples) * each // self.num_parts for each in (part, part + 1))
        return samples[first:last]


def _holders(shares: Shares) -> np.ndarray:
    """Return the member that holds each sample."""
    holders = np.empty(sum(map(len, shares)), dtype=np.int32)
    for member, samples in enumerate(shares):
        holders[samples] = member
    return holders


@dataclass(frozen=True)
class DataTraffic:
    """Movement of data in a run.

    `sample_bytes`: of a sample in a shuffle. `fed_bytes`: of a batch that the first worker of a
    node sends to another on the virtual clock; 0 if each draws its own. `moved` counts it all.
    """

    order: AbstractOrder
    sample_bytes: int = 0
    fed_bytes: int = 0
    moved: DataMoved = field(default_factory=DataMoved)

    def shuffle(self, copy: int, before: int, after: int) -> Shuffle:
        """Return the exchange of a copy's holders from a period to a later one."""
        assert isinstance(self.order, PartitionedOrder)
        first, second = (self.order.shares(copy, period) for period in (before, after))
        return Shuffle(first, second, self.sample_bytes)
