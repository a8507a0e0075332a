"""Shuffle of a partitioned training set, and the memory in which a worker holds its share.

In a shuffle, the workers exchange samples all-to-all, from memory to memory (Kumar 2017,
arXiv:1711.00705). In a random shuffle over p workers a sample leaves its worker with probability
1 - 1/p. A worker needs memory for its share, for a buffer, and for the order of all samples (about
64 bytes for each sample of the whole set).
"""

import mmap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from paceline.data.order import AbstractOrder, PartitionedOrder, Shares
from paceline.data.placement import DataMoved

_CHUNK_BYTES = 2**20  # of the whole set, whose samples in a share are read at a time


class RowFormat:
    """Format of a row, which has the bytes of a sample's tensors one after the other.

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
        """Return N samples as rows, uint8 [N, num_bytes]; each of `parts` is a tensor [N, ...]."""
        flat = [part.unsqueeze(1).flatten(1).contiguous().view(torch.uint8) for part in parts]
        return torch.cat(flat, dim=1)

    def unpack(self, rows: Tensor) -> list[Tensor]:
        """Return the tensors that `pack` made into `rows`."""
        tensors = list[Tensor]()
        for (dtype, shape), part in zip(self.parts, rows.split(self._sizes, dim=1), strict=True):
            if dtype != torch.uint8:
                part = part.clone(memory_format=torch.contiguous_format).view(dtype)
            tensors.append(part.reshape(len(part), *shape))
        return tensors


class Share:
    """Samples that one worker holds in its memory, a row of bytes for each.

    `samples`: numbers of these samples in the training set, int64. `read(some)` returns the rows of
    the samples `some`, uint8 [N, format.num_bytes]. `num_samples`: size of the whole training set.
    `spare`: number of additional rows, which stay free for an exchange.
    """

    def __init__(
        self,
        samples: np.ndarray,
        read: Callable[[np.ndarray], Tensor],
        row_format: RowFormat,
        num_samples: int,
        spare: int = 0,
    ) -> None:
        self.format = row_format
        self._rows = mapped_rows(len(samples) + spare, row_format.num_bytes)
        self._free = np.arange(len(samples) + spare)
        self._place = np.full(num_samples, -1)  # row of each sample of the set, -1 if not held
        ordered, set_bytes = np.sort(samples), row_format.num_bytes * max(num_samples, 1)
        at_a_time = max(1, _CHUNK_BYTES * len(ordered) // set_bytes)
        for first in range(0, len(ordered), at_a_time):
            chunk = ordered[first : first + at_a_time]
            self.accept(chunk, read(chunk))

    def take(self, samples: Tensor) -> list[Tensor]:
        """Return the tensors of `samples`, in the order of `samples`."""
        return self.format.unpack(self._rows.index_select(0, self._places(samples.numpy())))

    def give(self, samples: np.ndarray, room: Tensor) -> None:
        """Copy the rows of `samples` into `room`, and free the rows in this share."""
        places = self._places(samples)
        torch.index_select(self._rows, 0, places, out=room)
        self._free = np.concatenate([self._free, places.numpy()])
        self._place[samples] = -1

    def accept(self, samples: np.ndarray, rows: Tensor) -> None:
        """Put `rows` of further samples into free rows; raise RuntimeError if there are too few."""
        if len(samples) > len(self._free):
            raise RuntimeError(f"{len(samples)} samples for {len(self._free)} free rows")
        places, self._free = np.split(self._free, [len(samples)])
        self._rows[torch.from_numpy(places)] = rows
        self._place[samples] = places

    def _places(self, samples: np.ndarray) -> Tensor:
        """Return the row numbers of samples; raise KeyError for a sample that is not held."""
        places = self._place[samples]
        if (places < 0).any():
            missing = samples[places < 0][0]
            raise KeyError(f"sample {missing} is not in this worker's share")
        return torch.from_numpy(places)


def mapped_rows(num_rows: int, row_bytes: int) -> Tensor:
    """Return memory for rows: uint8 [num_rows, row_bytes], all zero.

    The memory is mapped, so that it goes back to the system when it is freed. malloc may instead
    keep freed memory that does not fit a later request.
    """
    num_bytes = num_rows * row_bytes
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    memory = mmap.mmap(-1, max(1, num_bytes), flags=private)
    return torch.frombuffer(memory, dtype=torch.uint8)[:num_bytes].view(num_rows, row_bytes)


BUFFER_BYTES = 2**24  # memory of a worker for the samples that it sends and receives at a time


class Part(NamedTuple):
    """Part of an exchange that fits the buffer, as one worker sees it.

    `going`: rows to send, sorted by receiving worker. `coming`: memory for the rows to receive,
    sorted by sending worker. Both are uint8 [rows, bytes of a row]. `sent`: number of rows to send
    to each worker. `received`: number of rows to receive from each worker.
    """

    going: Tensor
    coming: Tensor
    sent: list[int]
    received: list[int]


class Shuffle:
    """Exchange of samples among workers.

    `before`, `after`: shares of all workers before and after the exchange; a worker's share keeps
    its size. Each sample is sent at most once. `row_bytes`: bytes of a sample.
    """

    def __init__(
        self, before: Shares, after: Shares, row_bytes: int, buffer_bytes: int = BUFFER_BYTES
    ) -> None:
        self._workers = len(before)
        self._before, self._after = _holders(before), _holders(after)
        pairs = self._before * self._workers + self._after
        counts = np.bincount(pairs, minlength=self._workers**2)
        self.moved = counts.reshape(self._workers, self._workers)  # samples, from and to
        np.fill_diagonal(self.moved, 0)
        self.row_bytes = row_bytes
        most = max(self.moved.sum(0) + self.moved.sum(1), default=0) * row_bytes
        self.num_parts = -(-int(most) // buffer_bytes)

    def exchange(self, worker: int, share: Share) -> Iterator[Part]:
        """Yield the parts of the exchange for one worker, and update its `share`.

        Each part fits the buffer. The caller must send `going` and fill `coming` of a part before
        it asks for the next part.
        """
        others = range(self._workers)
        leaving = [self._samples(worker, other) for other in others]
        entering = [self._samples(other, worker) for other in others]
        each_part = range(self.num_parts)
        sent, received = (
            [[self._cut(samples, part) for samples in pairs] for part in each_part]
            for pairs in (leaving, entering)
        )
        rooms = (max((sum(map(len, part)) for part in way), default=0) for way in (sent, received))
        going, coming = (mapped_rows(most, self.row_bytes) for most in rooms)
        for out, into in zip(sent, received, strict=True):
            sizes_out, sizes_in = [*map(len, out)], [*map(len, into)]
            part = Part(going[: sum(sizes_out)], coming[: sum(sizes_in)], sizes_out, sizes_in)
            share.give(np.concatenate(out), part.going)
            yield part
            share.accept(np.concatenate(into), part.coming)

    def _samples(self, sender: int, receiver: int) -> np.ndarray:
        """Return the samples that `sender` sends to `receiver`: int64, none if they are equal."""
        if sender == receiver:
            return np.empty(0, dtype=np.int64)
        return np.flatnonzero((self._before == sender) & (self._after == receiver))

    def _cut(self, samples: np.ndarray, part: int) -> np.ndarray:
        """Return those of the samples from one worker to another that belong to part `part`.

        Parts have equal sizes, up to rounding. The cuts are rounded down; so among p workers, a
        worker has at any time received fewer than p samples more than it has sent.
        """
        first, last = (len(samples) * each // self.num_parts for each in (part, part + 1))
        return samples[first:last]


def _holders(shares: Shares) -> np.ndarray:
    """Return the worker that holds each sample."""
    holders = np.empty(sum(map(len, shares)), dtype=np.int32)
    for worker, samples in enumerate(shares):
        holders[samples] = worker
    return holders


@dataclass(frozen=True)
class DataTraffic:
    """Movement of training data between workers in a run.

    `sample_bytes`: bytes of a sample in a shuffle. `moved`: counts of the data that have moved so
    far.
    """

    order: AbstractOrder
    sample_bytes: int = 0
    moved: DataMoved = field(default_factory=DataMoved)

    def shuffle(self, before: int, after: int) -> Shuffle:
        """Return the exchange from period `before` to period `after`."""
        assert isinstance(self.order, PartitionedOrder)
        return Shuffle(self.order.shares(before), self.order.shares(after), self.sample_bytes)
