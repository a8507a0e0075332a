"""Samples in the memory of workers, and the shuffle of a partitioned training set.

All workers that hold a copy exchange samples with each other by an all-to-all in memory (Kumar
2017, arXiv:1711.00705). Of a random shuffle over p workers, a sample leaves its worker with
probability 1 - 1/p. A worker needs memory for its share, for a buffer, and for the order of all
samples, about 64 bytes for each sample of the set.
"""

import mmap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from paceline.data.order import AbstractOrder, PartitionedOrder, Shares
from paceline.data.placement import DataMoved

_CHUNK_BYTES = 2**20  # of the whole set, of which the share's samples are read at a time


class RowFormat:
    """Format of a sample of several tensors: their bytes, one after the other.

    `parts`: type and shape of each tensor of one sample.
    """

    def __init__(self, parts: Sequence[tuple[torch.dtype, tuple[int, ...]]]) -> None:
        self.parts = list(parts)
        self._sizes = [dtype.itemsize * torch.Size(shape).numel() for dtype, shape in self.parts]

    @property
    def num_bytes(self) -> int:
        """Bytes of one sample."""
        return sum(self._sizes)

    def pack(self, *parts: Tensor) -> Tensor:
        """Return the rows of samples: uint8 [N, num_bytes]; each part is [N, ...]."""
        flat = [part.unsqueeze(1).flatten(1).contiguous().view(torch.uint8) for part in parts]
        return torch.cat(flat, dim=1)

    def unpack(self, rows: Tensor) -> list[Tensor]:
        """Return the parts of samples, which `pack` had made to rows."""
        columns = zip(self.parts, rows.split(self._sizes, dim=1), strict=True)
        return [_read(part, dtype, shape) for (dtype, shape), part in columns]


class Share:
    """Samples held by one worker.

    `samples`: their numbers, int64. `read(samples)`: rows of some of them, uint8 [N,
    format.num_bytes]. `spare`: rows that are kept free for an exchange.
    """

    def __init__(
        self,
        samples: np.ndarray,
        read: Callable[[np.ndarray], Tensor],
        row_format: RowFormat,
        spare: int = 0,
    ) -> None:
        self.format = row_format
        capacity = len(samples) + spare
        self._rows = mapped_rows(capacity, row_format.num_bytes)
        self._held = np.full(capacity, -1)  # number of the sample in each row
        self._free = np.arange(capacity)
        for chunk in _chunks(np.sort(samples), row_format.num_bytes):
            self.accept(chunk, read(chunk))
        self.settle()

    def __len__(self) -> int:
        return len(self._sorted)

    @property
    def num_bytes(self) -> int:
        """Bytes of the held samples and of the spare rows."""
        return self._rows.numel()

    def take(self, samples: Tensor) -> list[Tensor]:
        """Return the parts of some samples, in their order."""
        return self.format.unpack(self._rows.index_select(0, self._places(samples.numpy())))

    def give(self, samples: np.ndarray, room: Tensor) -> None:
        """Put the rows of samples into `room`, and hold them no more."""
        places = self._places(samples)
        torch.index_select(self._rows, 0, places, out=room)
        self._free = np.concatenate([self._free, places.numpy()])
        self._held[places] = -1

    def accept(self, samples: np.ndarray, rows: Tensor) -> None:
        """Hold further samples, for which there are free rows."""
        if len(samples) > len(self._free):
            raise RuntimeError(f"{len(samples)} samples for {len(self._free)} free rows")
        places, self._free = np.split(self._free, [len(samples)])
        self._rows[torch.from_numpy(places)] = rows
        self._held[places] = samples

    def settle(self) -> None:
        """Make what was accepted the content of the share."""
        occupied = np.flatnonzero(self._held >= 0)
        self._place = occupied[np.argsort(self._held[occupied])]
        self._sorted = self._held[self._place]

    def _places(self, samples: np.ndarray) -> Tensor:
        """Return the rows of samples; raises KeyError for one that is not held."""
        found = np.searchsorted(self._sorted, samples).clip(max=max(0, len(self._sorted) - 1))
        if not np.array_equal(self._sorted[found], samples):
            missing = samples[self._sorted[found] != samples]
            raise KeyError(f"sample {missing[0]} is not in this worker's share")
        return torch.from_numpy(self._place[found])


def _chunks(ordered: np.ndarray, row_bytes: int) -> list[np.ndarray]:
    """Cut sorted samples where the whole set would have filled another chunk."""
    of_chunk = ordered // max(1, _CHUNK_BYTES // row_bytes)
    return np.split(ordered, np.flatnonzero(np.diff(of_chunk)) + 1)


def _read(part: Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    if dtype != torch.uint8:
        part = part.clone(memory_format=torch.contiguous_format).view(dtype)
    return part.reshape(len(part), *shape)


def mapped_rows(num_rows: int, row_bytes: int) -> Tensor:
    """Return memory for rows: uint8 [num_rows, row_bytes], all zero.

    malloc may keep what was freed for later, and find no room for the next in it.
    """
    num_bytes = num_rows * row_bytes
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    memory = mmap.mmap(-1, max(1, num_bytes), flags=private)
    return torch.frombuffer(memory, dtype=torch.uint8)[:num_bytes].view(num_rows, row_bytes)


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
