"""Samples as rows of bytes, in which they are held and sent."""

from collections.abc import Sequence

import torch
from torch import Tensor


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


def _read(part: Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    if dtype != torch.uint8:
        part = part.clone(memory_format=torch.contiguous_format).view(dtype)
    return part.reshape(len(part), *shape)
