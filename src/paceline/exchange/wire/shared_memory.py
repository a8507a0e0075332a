"""Memory that two processes of one machine share. In the host it is a memfd of Linux, passed over a
Unix socket, so that no other process can open it; it is freed with the last of the two. Memory and
events of a GPU are shared by CUDA IPC.
"""

import fcntl
import json
import mmap
import os
import socket
import struct
import weakref
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor

from paceline.errors import SettingError

_PLACES = struct.Struct("<QQQ")
_LENGTH = struct.Struct("<I")
_MOST_BYTES = 4096  # of a handle, which has a few hundred


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


class Signals:
    """Events of a worker's GPU that order the work of a worker and a server, neither of which waits
    for what it has launched. `device`: that GPU. `pushed`: recorded when a push is complete.
    `answered`: recorded when the answer is.
    """

    def __init__(self, device: torch.device, handles: Sequence[bytes] = ()) -> None:
        """Make the events, or open those of another process by their handles."""
        self._device = device
        with torch.cuda.device(device):
            if handles:
                made = [torch.cuda.Event.from_ipc_handle(device, handle) for handle in handles]
            else:
                made = [torch.cuda.Event(interprocess=True) for _ in range(2)]
            self.pushed, self.answered = made
            self.handles = handles or [bytes(event.ipc_handle()) for event in made]

    def push(self) -> None:
        """Record, in the worker, that the push is complete when all work so far is done."""
        self.pushed.record(torch.cuda.current_stream(self._device))

    def await_answer(self) -> None:
        """Let the worker's further work on the GPU wait for the answer."""
        self.answered.wait(torch.cuda.current_stream(self._device))

    def is_complete(self) -> bool:
        """Return True if the latest push is complete."""
        return self.pushed.query()

    def await_push(self, server: torch.device) -> None:
        """Let further work of the server, on its GPU, wait for the latest push."""
        self.pushed.wait(torch.cuda.current_stream(server))

    def answer(self, server: torch.device) -> None:
        """Record, in the server, that the answer is complete when all work so far is done."""
        own, theirs = (torch.cuda.current_stream(each) for each in (server, self._device))
        if server != self._device:  # an event is recorded by its own GPU
            theirs.wait_stream(own)
        self.answered.record(theirs)


def share_on_gpu(connection: socket.socket, vectors: Tensor, first: int, last: int) -> Signals:
    """Let the process at the other end of a Unix socket use columns [first, last) of `vectors`, and
    new events, which are returned.

    `vectors` [rows, n]: contiguous, and alone in its storage. It must exist for as long as the
    other process uses it.
    """
    torch.cuda.synchronize(vectors.device)  # before the other process writes
    signals = Signals(vectors.device)
    handle = vectors.untyped_storage()._share_cuda_()  # pyright: ignore[reportPrivateUsage]
    plain = [each.hex() if isinstance(each, bytes) else each for each in handle]
    events = [each.hex() for each in signals.handles]
    content = json.dumps([plain, list(vectors.shape), first, last, events]).encode()
    connection.sendall(_LENGTH.pack(len(content)) + content)
    return signals


def take_from_gpu(
    connection: socket.socket, size: int, dtype: torch.dtype
) -> tuple[list[Tensor], Signals]:
    """Return the rows [size] and the events that another process shares. Raises ConnectionError for
    anything but such a message, and ValueError for rows of another size.
    """
    length = _LENGTH.unpack(_exactly(connection, _LENGTH.size))[0]
    if length > _MOST_BYTES:
        raise ConnectionError("a worker that shares no memory of a GPU")
    handle, shape, first, last, events = json.loads(_exactly(connection, length))
    if last - first != size or not 0 <= first <= last <= shape[1]:
        raise ValueError(f"no {size} values from {first} on, of {shape[1]}")
    torch.cuda.init()
    texts = (1, 4, 6)  # the parts of a handle that are bytes
    parts = [bytes.fromhex(each) if n in texts else each for n, each in enumerate(handle)]
    storage = torch.UntypedStorage._new_shared_cuda(*parts)  # pyright: ignore[reportPrivateUsage]
    empty = torch.empty(0, dtype=dtype, device=storage.device)
    rows = empty.set_(storage, 0, shape, (shape[1], 1))  # pyright: ignore[reportCallIssue]
    signals = Signals(storage.device, [bytes.fromhex(each) for each in events])
    return list(rows[:, first:last]), signals


def _exactly(connection: socket.socket, num_bytes: int) -> bytes:
    content = b""
    while len(content) < num_bytes:
        more = connection.recv(num_bytes - len(content))
        if not more:
            raise ConnectionError("a worker that shares no memory of a GPU")
        content += more
    return content


def other_node(name: str) -> SettingError:
    """Return the error for a process of this name on another node, which cannot share a GPU."""
    message = f"{name} is on another machine, and memory of a GPU is shared inside one only; "
    return SettingError("cluster.server_device", message + "cpu is needed")


def pin(memory: Tensor) -> bool:
    """Lock host memory in place, so that a GPU copies it by itself and at full speed.

    Returns False if the system does not allow it; copies then take three times as long.
    """
    if not memory.numel():
        return True
    runtime: Any = torch.cuda.cudart()
    address = memory.data_ptr()
    if int(runtime.cudaHostRegister(address, memory.nbytes, 0)):
        with suppress(RuntimeError):  # the next call would raise the error that CUDA keeps
            torch.zeros(1, device="cuda")
        return False
    weakref.finalize(memory.untyped_storage(), runtime.cudaHostUnregister, address)
    return True
