"""Messages as bytes: a header of 16 bytes on every wire, and the buffers that follow it."""

import bisect
import itertools
import socket
import struct
from typing import NamedTuple

import torch
from torch import Tensor

_STRUCT = struct.Struct("<qq")  # float32 would count exactly only to 2^24
HEADER_BYTES = _STRUCT.size
_MOST_BUFFERS = 1024  # in a call to a socket (IOV_MAX of Linux)


class Header(NamedTuple):
    """Version of the weights that a worker read or a server sends, and flags.

    `proceed`: to a server, True for a push, False if the worker leaves, after which no body
    follows; to a worker, True if it may take another step, False if the budget is used up. `keep`:
    to a server, True if it is to keep its state for a checkpoint: no body follows, and no answer.
    `stop`, with `proceed`: to a worker, True if it is to stop before that step, for a checkpoint;
    to a server, True if it is to stop all workers so.
    """

    version: int
    proceed: bool
    keep: bool = False
    stop: bool = False


def pack(header: Header) -> bytes:
    """Turn a header into HEADER_BYTES bytes."""
    return _STRUCT.pack(header.version, header.proceed + 2 * header.keep + 4 * header.stop)


def unpack(content: bytes | bytearray) -> Header:
    """Read a header; raise ValueError for bytes that `pack` cannot have made."""
    version, flags = _STRUCT.unpack(content)
    if version < 0 or flags not in (0, 1, 2, 5):
        raise ValueError(f"no header: {bytes(content).hex()}")
    return Header(version, bool(flags & 1), flags == 2, flags == 5)


def bytes_of(tensor: Tensor) -> memoryview:
    """Return the memory of a contiguous tensor as bytes, without a copy."""
    return tensor.view(torch.uint8).numpy().data


class Pieces:
    """Buffers that are sent or filled one after another, in as many calls as a socket needs.

    `done`: number of bytes that are sent or received.
    """

    def __init__(self, *buffers: memoryview) -> None:
        self._buffers = buffers
        self._ends = list(itertools.accumulate(map(len, buffers)))
        self._num_bytes = self._ends[-1] if buffers else 0
        self.done = 0

    @property
    def complete(self) -> bool:
        return self.done == self._num_bytes

    def send(self, connection: socket.socket) -> None:
        """Send as much as the socket takes now, or all if it blocks. Raises OSError."""
        while not self.complete:
            try:
                self.done += connection.sendmsg(self._rest())
            except BlockingIOError:
                return

    def receive(self, connection: socket.socket) -> None:
        """Read once from the socket. Raises OSError, or EOFError at the end of the connection."""
        more = connection.recvmsg_into(self._rest())[0]
        if more == 0:
            raise EOFError
        self.done += more

    def _rest(self) -> list[memoryview]:
        """Return what is left, of at most as many buffers as a call takes."""
        place = bisect.bisect_right(self._ends, self.done)
        buffer = self._buffers[place]
        first = buffer[self.done - self._ends[place] + len(buffer) :]
        return [first, *self._buffers[place + 1 : place + _MOST_BUFFERS]]
