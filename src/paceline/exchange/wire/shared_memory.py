"""Anonymous memory that two processes share. It is a memfd of Linux, passed over a Unix socket, so
that no other process can open it; it is freed with the last of the two.
"""

import fcntl
import mmap
import os
import socket
import struct
from typing import NamedTuple

import torch
from torch import Tensor

_PLACES = struct.Struct("<QQQ")


class Places(NamedTuple):
    """Offsets of one server's parts in a worker's memory [bytes]."""

    gradient: int
    statistics: int
    weights: int


def allocate(num_bytes: int) -> tuple[int, Tensor]:
    """Return memory [num_bytes] uint8, all zero, and its descriptor, which the caller closes."""
    descriptor = os.memfd_create("paceline", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, max(1, num_bytes))
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
    return descriptor, _map(descriptor)


def share(connection: socket.socket, descriptor: int, places: Places) -> None:
    """Let the process at the other end of a Unix socket map the memory."""
    socket.send_fds(connection, [_PLACES.pack(*places)], [descriptor])


def take_share(connection: socket.socket) -> tuple[Tensor, Places]:
    """Map the memory uint8 that another process shares; also return the places in it. Raises
    ConnectionError if none is shared, and ValueError if the memory can shrink: reading beyond its
    end would kill this process.
    """
    content, descriptors, _, _ = socket.recv_fds(connection, _PLACES.size, 1)
    if len(descriptors) != 1 or len(content) != _PLACES.size:
        raise ConnectionError("a worker that shares no memory")
    try:
        if not fcntl.fcntl(descriptors[0], fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK:
            raise ValueError("a worker shares memory that may shrink")
        return _map(descriptors[0]), Places(*_PLACES.unpack(content))
    finally:
        os.close(descriptors[0])


def part(memory: Tensor, first_byte: int, count: int, dtype: torch.dtype) -> Tensor:
    """View `count` values in `memory` from `first_byte` on. Raises ValueError beyond its end."""
    last_byte = first_byte + count * dtype.itemsize
    if last_byte > memory.numel() or first_byte % dtype.itemsize:
        raise ValueError(f"no {count} values at byte {first_byte} of {memory.numel()}")
    return memory[first_byte:last_byte].view(dtype)


def whole_pages(num_bytes: int) -> int:
    """Round up to whole pages of memory [bytes]."""
    return -(-num_bytes // mmap.PAGESIZE) * mmap.PAGESIZE


def _map(descriptor: int) -> Tensor:
    return torch.frombuffer(mmap.mmap(descriptor, 0), dtype=torch.uint8)
