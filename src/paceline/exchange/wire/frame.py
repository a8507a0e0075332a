"""Messages as bytes: a header of 16 bytes, and the buffers that follow it."""

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

    To a server: `proceed` is True for a push, False if the worker leaves; no body follows then.
    `keep` asks it to save its state for a checkpoint; no body follows, and it does not answer.

    To a worker: `proceed` grants another step. `stop` tells it to stop before that step for a
    checkpoint.
    """

    version: int
    proceed: bool
    keep: bool = False
    stop: bool = False


def pack(header: Header) -> bytes:
    """Return a header as HEADER_BYTES bytes."""
    return _STRUCT.pack(header.version, header.proceed + 2 * header.keep + 4 * header.stop)


def unpack(content: bytes | bytearray) -> Header:
    """Read a header. Raises ValueError for bytes that `pack` does not make."""
    version, flags = _STRUCT.unpack(content)
    if version < 0 or flags not in (0, 1, 2, 5):
        raise ValueError(f"no header: {bytes(content).hex()}")
    return Header(version, bool(flags & 1), flags == 2, flags == 5)


def bytes_of(tensor: Tensor) -> memoryview:
    """Return the memory of a contiguous tensor as bytes, without a copy."""
    return tensor.view(torch.uint8).numpy().data


class Pieces:
    """Buffers that are sent or filled one after another, in as many calls as a socket needs.
    `done`: bytes sent or received so far.
    """

    def __init__(self, *buffers: memoryview) -> None:
        self._buffers = buffers
        self._ends = list(itertools.accumulate(map(len, buffers)))
        self._num_bytes = self._ends[-1] if buffers else 0
        self.done = 0

    def begin_again(self) -> "Pieces":
        """Prepare to send or to fill the same buffers once more; return itself."""
        self.done = 0
        return self

    def replace(self, *buffers: memoryview) -> None:
        """Take the rest from other buffers of equal sizes and content."""
        self._buffers = buffers

    @property
    def complete(self) -> bool:
        return self.done == self._num_bytes

    @property
    def has_first(self) -> bool:
        """True if the first buffer is complete."""
        return self.done >= self._ends[0]

    def send(self, connection: socket.socket) -> None:
        """Send as much as the socket accepts now, or all if it blocks. Raises OSError."""
        while not self.complete:
            try:
                self.done += connection.sendmsg(self._rest())
            except BlockingIOError:
                return

    def receive(self, connection: socket.socket) -> None:
        """Read once from the socket. Raises OSError, and EOFError at the end of the connection."""
        more = connection.recvmsg_into(self._rest())[0]
        if more == 0:
            raise EOFError
        self.done += more

    def _rest(self) -> list[memoryview]:
        """Return the remaining buffers, at most as many as one call accepts."""
        place = bisect.bisect_right(self._ends, self.done)
        buffer = self._buffers[place]
        first = buffer[self.done - self._ends[place] + len(buffer) :]
        return [first, *self._buffers[place + 1 : place + _MOST_BUFFERS]]
