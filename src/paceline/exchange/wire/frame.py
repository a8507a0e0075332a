"""Messages as bytes: a header of 16 bytes, and the buffers that follow it."""

import bisect
import itertools
import socket
import struct
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from paceline.exchange.wire.handshake import TAG_BYTES, Seal

_STRUCT = struct.Struct("<qq")  # float32 would count exactly only to 2^24
HEADER_BYTES = _STRUCT.size
_MOST_BUFFERS = 1024  # in a call to a socket (IOV_MAX of Linux)
_RECORD_BYTES = 2**18  # which a core's cache holds
_RECORDS_AHEAD = 4  # that get their tags before the earlier ones have left


class Header(NamedTuple):
    """Version of the weights that a worker read or a server sends, and flags.

    To a server: `proceed` is True for a push, False if the worker leaves; no body follows then.
    `keep` asks it to save its state for a checkpoint; no body follows, and it does not answer.
    `stop`, in a push, asks it to stop all workers for a checkpoint.

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

    With a `seal`, each buffer travels as records of at most _RECORD_BYTES, each with a tag behind
    it. A record gets its tag when it is about to be sent, and is checked when it has arrived, while
    the kernel carries the others. `done`: bytes sent or received so far, with those of tags.
    """

    def __init__(self, *buffers: memoryview, seal: Seal | None = None) -> None:
        self._seal, self._num_sealed = seal, 0  # records with a tag that is made or checked
        self._buffers = list(buffers) if seal is None else _with_tags(buffers, [])
        self._ends = list(itertools.accumulate(map(len, self._buffers)))
        self._num_bytes = self._ends[-1] if self._buffers else 0
        self.done = 0

    def begin_again(self) -> "Pieces":
        """Prepare to send or to fill the same buffers once more; return itself."""
        self.done = self._num_sealed = 0
        return self

    def replace(self, *buffers: memoryview) -> None:
        """Take the rest from other buffers of equal sizes and content."""
        tags = self._buffers[1::2]
        self._buffers = list(buffers) if self._seal is None else _with_tags(buffers, tags)

    @property
    def complete(self) -> bool:
        return self.done == self._num_bytes

    @property
    def has_first(self) -> bool:
        """True if the first buffer is complete, and its tag was checked."""
        return self.done >= self._ends[0 if self._seal is None else 1]

    def send(self, connection: socket.socket) -> None:
        """Send as much as the socket accepts now, or all if it blocks. Raises OSError."""
        while not self.complete:
            try:
                self.done += connection.sendmsg(self._rest(self._tagged()))
            except BlockingIOError:
                return

    def receive(self, connection: socket.socket) -> None:
        """Read once from the socket. Raises OSError, EOFError at the end of the connection, and
        ConnectionError for a record that the other end has not sent.
        """
        more = connection.recvmsg_into(self._rest(len(self._buffers)))[0]
        if more == 0:
            raise EOFError
        self.done += more
        if self._seal is not None:
            place = 2 * self._num_sealed
            while place < len(self._buffers) and self._ends[place + 1] <= self.done:
                self._seal.check(*self._buffers[place : place + 2])
                self._num_sealed += 1
                place += 2

    def _tagged(self) -> int:
        """Give tags to the next records; return the number of buffers that may be sent."""
        if self._seal is None:
            return len(self._buffers)
        until = bisect.bisect_right(self._ends, self.done) + 2 * _RECORDS_AHEAD
        for place in range(2 * self._num_sealed, min(until, len(self._buffers)) - 1, 2):
            self._buffers[place + 1][:] = self._seal.tag(self._buffers[place])
            self._num_sealed += 1
        return 2 * self._num_sealed

    def _rest(self, last: int) -> list[memoryview]:
        """Return the remaining buffers before the number `last`, at most as many as one call
        accepts.
        """
        place = bisect.bisect_right(self._ends, self.done)
        buffer = self._buffers[place]
        first = buffer[self.done - self._ends[place] + len(buffer) :]
        return [first, *self._buffers[place + 1 : min(last, place + _MOST_BUFFERS)]]


def _with_tags(buffers: Sequence[memoryview], tags: list[memoryview]) -> list[memoryview]:
    """Cut `buffers` into records, each followed by one of `tags`, or else by a new one."""
    records = [
        buffer[first : first + _RECORD_BYTES]
        for buffer in buffers
        for first in range(0, len(buffer), _RECORD_BYTES)
    ]
    tags = tags or [memoryview(bytearray(TAG_BYTES)) for _ in records]
    return list(itertools.chain.from_iterable(zip(records, tags, strict=True)))
