"""Memory of a GPU that two processes of one machine share by CUDA IPC, and pinned host memory."""

import json
import socket
import struct
import weakref
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from paceline.errors import SettingError

_LENGTH = struct.Struct("<I")
_MOST_BYTES = 4096  # of a handle, which has a few hundred


def share_on_gpu(connection: socket.socket, vectors: Tensor, first: int, last: int) -> None:
    """Let the process at the other end of a Unix socket use columns [first, last) of `vectors`.

    `vectors` [rows, n]: contiguous, and alone in its storage. It must exist for as long as the
    other process uses it.
    """
    handle = vectors.untyped_storage()._share_cuda_()  # pyright: ignore[reportPrivateUsage]
    plain = [each.hex() if isinstance(each, bytes) else each for each in handle]
    content = json.dumps([plain, list(vectors.shape), first, last]).encode()
    connection.sendall(_LENGTH.pack(len(content)) + content)


def take_from_gpu(connection: socket.socket, size: int, dtype: torch.dtype) -> list[Tensor]:
    """Return the rows [size] that another process shares. Raises ConnectionError for anything but
    such a message, and ValueError for rows of another size.
    """
    length = _LENGTH.unpack(_exactly(connection, _LENGTH.size))[0]
    if length > _MOST_BYTES:
        raise ConnectionError("a worker that shares no memory of a GPU")
    handle, shape, first, last = json.loads(_exactly(connection, length))
    if last - first != size or not 0 <= first <= last <= shape[1]:
        raise ValueError(f"no {size} values from {first} on, of {shape[1]}")
    torch.cuda.init()
    texts = (1, 4, 6)  # the parts of a handle that are bytes
    parts = [bytes.fromhex(each) if n in texts else each for n, each in enumerate(handle)]
    storage = torch.UntypedStorage._new_shared_cuda(*parts)  # pyright: ignore[reportPrivateUsage]
    empty = torch.empty(0, dtype=dtype, device=storage.device)
    rows = empty.set_(storage, 0, shape, (shape[1], 1))  # pyright: ignore[reportCallIssue]
    return list(rows[:, first:last])


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
