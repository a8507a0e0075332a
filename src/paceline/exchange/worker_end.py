"""A worker's end of the connection to one server."""

import os
import socket
import struct
import weakref

from paceline.exchange.header import HEADER_BYTES, Header, pack, unpack
from paceline.exchange.lost import LostPeerError
from paceline.exchange.pieces import Pieces

_open: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def _close_all() -> None:
    """A child (a DataLoader's worker) would keep a connection open when its parent is dead."""
    for connection in list(_open):
        connection.close()


os.register_at_fork(after_in_child=_close_all)
_TIMEVAL = struct.Struct("ll")  # seconds, microseconds


class WorkerEnd:
    """`pushed`, `pulled`: what bodies are sent from and received into; in shared memory none is."""

    def __init__(
        self,
        server: int,
        connection: socket.socket,
        pushed: list[memoryview],
        pulled: list[memoryview],
        timeout_seconds: float,
    ) -> None:
        self._server, self._timeout_seconds = server, timeout_seconds
        self._connection = connection
        _open.add(connection)
        self._pushed, self._pulled = pushed, pulled
        self._header = bytearray(HEADER_BYTES)
        connection.setblocking(True)  # the kernel's own time limit spares a system call each time
        limit = _TIMEVAL.pack(int(timeout_seconds), int(timeout_seconds % 1 * 1e6))
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            connection.setsockopt(socket.SOL_SOCKET, option, limit)

    def push(self, version: int) -> None:
        self._send(Pieces(memoryview(pack(Header(version, True))), *self._pushed))

    def pull(self) -> Header:
        incoming = Pieces(memoryview(self._header), *self._pulled)
        try:
            while not incoming.complete:
                incoming.receive(self._connection)
        except BlockingIOError:
            raise self._too_late() from None
        except (OSError, EOFError) as error:
            raise self._lost(error) from None
        return unpack(self._header)

    def leave(self, version: int) -> None:
        self._send(Pieces(memoryview(pack(Header(version, False)))))
        self._connection.close()

    def _send(self, outgoing: Pieces) -> None:
        try:
            outgoing.send(self._connection)
        except OSError as error:
            raise self._lost(error) from None
        if not outgoing.complete:
            raise self._too_late()

    def _lost(self, error: Exception) -> LostPeerError:
        seen = str(error) or "its connection ended"
        return LostPeerError(f"server {self._server} is gone: {seen}")

    def _too_late(self) -> TimeoutError:
        return TimeoutError(f"server {self._server} is silent for {self._timeout_seconds} s")
