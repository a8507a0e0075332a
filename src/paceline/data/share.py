"""Samples that one worker holds in its memory, as rows of bytes that can be exchanged."""

import mmap
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

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
