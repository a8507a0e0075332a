"""Connection of a worker to one server, or to another worker that answers like one."""

import socket
import struct

from paceline.exchange.lost import LostPeerError
from paceline.exchange.process_group import joined, worker_index
from paceline.exchange.wire.connection import Address, connect
from paceline.exchange.wire.handshake import Hello
from paceline.exchange.wire.header import HEADER_BYTES, Header, pack, unpack
from paceline.exchange.wire.pieces import Pieces
from paceline.exchange.wire.shared_memory import Places, share

_NO_NUMBERS = memoryview(b"")
_TIMEVAL = struct.Struct("ll")  # seconds, microseconds


class WorkerEnd:
    """Worker's end of a connection to one server.

    `name`: name of the other process in error messages. `pushed`, `pulled`: buffers of the bodies
    to send and to receive; empty if memory is `shared`. `numbers`: buffer that follows the header
    of each push. `timeout_seconds`: longest silence of the server.
    """

    def __init__(
        self,
        name: str,
        connection: socket.socket,
        pushed: list[memoryview],
        pulled: list[memoryview],
        timeout_seconds: float,
        numbers: memoryview = _NO_NUMBERS,
    ) -> None:
        self._numbers = [numbers] if len(numbers) else []
        self._name, self.timeout_seconds = name, timeout_seconds
        self._connection = connection
        self._pushed, self._pulled = pushed, pulled
        self.shared = not pulled
        self._header = bytearray(HEADER_BYTES)
        self._asks = False  # the server to stop, with the next push
        self._outgoing, self._incoming = Pieces(), Pieces()  # of a push that does not wait
        connection.setblocking(True)  # the kernel's time limit needs no system call per message
        limit = _TIMEVAL.pack(int(timeout_seconds), int(timeout_seconds % 1 * 1e6))
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            connection.setsockopt(socket.SOL_SOCKET, option, limit)

    @property
    def num_parts(self) -> int:
        """Number of the buffers of a push's body."""
        return len(self._pushed)

    def push(self, version: int) -> None:
        """Send a push computed on weights of `version`. Raises LostPeerError, TimeoutError."""
        self.push_parts(range(self.num_parts), version)

    def push_parts(self, parts: range, version: int) -> None:
        """Send some buffers of a push, behind its header if they are the first ones.

        Raises LostPeerError, TimeoutError.
        """
        self._send_all(self._push_of(parts, version))

    def pull(self) -> Header:
        """Wait for an answer. Raises LostPeerError, TimeoutError."""
        incoming = self._next_answer()
        while not incoming.complete:
            if not self._receive(incoming):
                raise self.too_late()
        return unpack(self._header)

    def fileno(self) -> int:
        """Return the connection's descriptor, to wait for until it takes or has more."""
        return self._connection.fileno()

    def begin_push(self, version: int) -> None:
        """Begin a push computed on weights of `version`, and its answer, without waiting.

        `send_more` sends the push, `receive_more` takes the answer.
        """
        self._outgoing = self._push_of(range(self.num_parts), version)
        self._incoming = self._next_answer()

    def send_more(self) -> bool:
        """Send what is taken; return True if the push has left. Raises LostPeerError."""
        return self._send(self._outgoing, socket.MSG_DONTWAIT)

    def receive_more(self) -> Header | None:
        """Take what has come; return the header of a complete answer. Raises LostPeerError."""
        self._receive(self._incoming, socket.MSG_DONTWAIT)
        return unpack(self._header) if self._incoming.complete else None

    def keep(self, version: int) -> None:
        """Tell the server to keep its state for a checkpoint; it sends no answer."""
        self._send_all(Pieces(memoryview(pack(Header(version, False, keep=True)))))

    def ask_to_stop(self) -> None:
        """Ask the server, with the next push, to stop all workers for a checkpoint."""
        self._asks = True

    def leave(self, version: int) -> None:
        """Announce to the server that no push follows, and close the connection."""
        self._send_all(Pieces(memoryview(pack(Header(version, False)))))
        self._connection.close()

    def _next_answer(self) -> Pieces:
        return Pieces(memoryview(self._header), *self._pulled)

    def _receive(self, incoming: Pieces, flags: int = 0) -> bool:
        """Read once; return False if nothing has come."""
        try:
            incoming.receive(self._connection, flags)
        except BlockingIOError:
            return False
        except (OSError, EOFError) as error:
            raise self._lost(error) from None
        return True

    def _push_header(self, version: int) -> memoryview:
        asks, self._asks = self._asks, False
        return memoryview(pack(Header(version, True, stop=asks)))

    def _push_of(self, parts: range, version: int) -> Pieces:
        begin = [] if parts.start else [self._push_header(version), *self._numbers]
        return Pieces(*begin, *self._pushed[parts.start : parts.stop])

    def _send_all(self, outgoing: Pieces) -> None:
        if not self._send(outgoing):
            raise self.too_late()

    def _send(self, outgoing: Pieces, flags: int = 0) -> bool:
        """Send what is taken; return True if that is all."""
        try:
            outgoing.send(self._connection, flags)
        except OSError as error:
            raise self._lost(error) from None
        return outgoing.complete

    def _lost(self, error: Exception) -> LostPeerError:
        reason = str(error) or "its connection ended"
        return LostPeerError(f"{self._name} is gone: {reason}")

    def too_late(self) -> TimeoutError:
        """Return the error of a server that neither takes nor sends anything."""
        return TimeoutError(f"{self._name} is silent for {self.timeout_seconds} s")


def reach(
    name: str,
    address: Address,
    pushed: list[memoryview],
    pulled: memoryview,
    descriptor: int,
    places: Places,
    node: str,
    numbers: memoryview = _NO_NUMBERS,
) -> WorkerEnd:
    """Connect this worker on `node` to the process at `address`.

    `descriptor`, `places`: memory of `pushed` and `pulled`, and the offsets in it, which both
    processes share if they are on one node. `numbers`: buffer behind each header. Raises
    LostPeerError if the process cannot be reached or does not know the run's secret.
    """
    secret, timeout_seconds = joined()
    hello = Hello(worker_index(), sum(map(len, pushed)), len(pulled))
    try:
        connection, shared = connect(
            secret, address, hello, node=node, timeout_seconds=timeout_seconds
        )
    except ConnectionError as error:
        raise LostPeerError(f"{name} cannot be reached: {error}") from None
    if not shared:
        return WorkerEnd(name, connection, pushed, [pulled], timeout_seconds, numbers)
    share(connection, descriptor, places)
    return WorkerEnd(name, connection, [], [], timeout_seconds, numbers)
