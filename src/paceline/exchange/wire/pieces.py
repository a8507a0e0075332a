"""Buffers that are sent or filled one after another, in as many calls as a socket needs."""

import bisect
import itertools
import socket

import torch
from torch import Tensor

_MOST = 1024  # buffers of a call to a socket (IOV_MAX of Linux)


def bytes_of(tensor: Tensor) -> memoryview:
    """Return the memory of a contiguous tensor as bytes, without a copy."""
    return tensor.view(torch.uint8).numpy().data


class Pieces:
    """A sequence of buffers. `done`: number of bytes that are sent or received."""

    def __init__(self, *buffers: memoryview) -> None:
        self._buffers = buffers
        self._ends = list(itertools.accumulate(map(len, buffers)))
        self._num_bytes = self._ends[-1] if buffers else 0
        self.done = 0

    @property
    def complete(self) -> bool:
        return self.done == self._num_bytes

    def send(self, connection: socket.socket, flags: int = 0) -> None:
        """Send as much as the socket takes now, or all if it blocks. Raises OSError."""
        while not self.complete:
            try:
                self.done += connection.sendmsg(self._rest(), (), flags)
            except BlockingIOError:
                return

    def receive(self, connection: socket.socket, flags: int = 0) -> None:
        """Read once from the socket. Raises OSError, or EOFError at the end of the connection."""
        more = connection.recvmsg_into(self._rest(), 0, flags)[0]
        if more == 0:
            raise EOFError
        self.done += more

    def _rest(self) -> list[memoryview]:
        """Return what is left, of at most as many buffers as a call takes."""
        place = bisect.bisect_right(self._ends, self.done)
        buffer = self._buffers[place]
        first = buffer[self.done - self._ends[place] + len(buffer) :]
        return [first, *self._buffers[place + 1 : place + _MOST]]
