"""Shuffle of a partitioned set: all workers that hold a copy exchange samples with each other.

Kumar 2017 (arXiv:1711.00705) shuffles data in memory by an all-to-all among learners. Of a random
shuffle over p workers, a sample leaves its worker with probability 1 - 1/p.
"""

from collections.abc import Generator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from paceline.data.order import Shares
from paceline.data.share import Share

BUFFER_BYTES = 2**24  # of a worker, for what it sends and what it receives


class Outgoing(NamedTuple):
    """Part of an exchange. `rows`: for all members in order, uint8 [sum(sent), bytes of a row].

    `sent`, `received`: number of rows for each member, and from each.
    """

    rows: Tensor
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

    def exchange(self, member: int, share: Share) -> Generator[Outgoing, Tensor, None]:
        """Exchange the samples of a member in parts, each of a buffer at most.

        Every part that it yields wants the rows that came from all members, in their order.
        """
        others = range(self._members)
        sent = [self._samples(member, other) for other in others]
        received = [self._samples(other, member) for other in others]
        for part in range(self.num_parts):
            going = [self._part(samples, part) for samples in sent]
            coming = [self._part(samples, part) for samples in received]
            rows = share.give(np.concatenate(going))
            arrived = yield Outgoing(rows, [*map(len, going)], [*map(len, coming)])
            share.accept(np.concatenate(coming), arrived)
        share.settle()

    def _samples(self, sender: int, receiver: int) -> np.ndarray:
        """List the samples that one member sends to another, none to itself."""
        if sender == receiver:
            return np.empty(0, dtype=np.int64)
        return np.flatnonzero((self._before == sender) & (self._after == receiver))

    def _part(self, samples: np.ndarray, part: int) -> np.ndarray:
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


def empty_rows(num_rows: int, row_bytes: int) -> Tensor:
    """Return room for rows that are received."""
    return torch.empty((num_rows, row_bytes), dtype=torch.uint8)
