"""Rows of bytes in memory of their own, which goes back to the system as soon as they are freed."""

import mmap

import torch
from torch import Tensor


def mapped_rows(num_rows: int, row_bytes: int) -> Tensor:
    """Return memory for rows: uint8 [num_rows, row_bytes], all zero.

    malloc may keep what was freed for later, and find no room for the next in it.
    """
    num_bytes = num_rows * row_bytes
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    memory = mmap.mmap(-1, max(1, num_bytes), flags=private)
    return torch.frombuffer(memory, dtype=torch.uint8)[:num_bytes].view(num_rows, row_bytes)
