"""Connection of a worker to one server, or to another worker that answers like a server."""

import socket
import struct
from collections.abc import Callable

from paceline.exchange.liveness import LostPeerError
from paceline.exchange.process_group import joined, worker_index
from paceline.exchange.wire.connection import Address, Hello, connect
from paceline.exchange.wire.frame import HEADER_BYTES, Header, Pieces, pack, unpack
from paceline.exchange.wire.gpu_memory import Signals, other_node
from paceline.exchange.wire.shared_memory import Places, share

_NO_NUMBERS = memoryview(b"")
_TIMEVAL = struct.Struct("ll")  # seconds, microseconds


class WorkerEnd:
    """Worker's end of a connection to one server.

    `name`: of the server, for messages. `pushed`, `pulled`: buffers to send and to receive; empty
    if memory is `shared`. `numbers`: buffer that follows the header of each push.
    `timeout_seconds`: longest silence of the server. `signals`: of memory that is shared on a GPU,
    else None. Sending and receiving raise LostPeerError and TimeoutError.
    """

    def __init__(
        self,
        name: str,
        connection: socket.socket,
        pushed: list[memoryview],
        pulled: list[memoryview],
        timeout_seconds: float,
        numbers: memoryview = _NO_NUMBERS,
        signals: Signals | None = None,
    ) -> None:
        self._signals = signals
        self._name, self._timeout_seconds = name, timeout_seconds
        self._connection = connection
        self.shared = not pulled
        self._header, self._packed = bytearray(HEADER_BYTES), bytearray(HEADER_BYTES)
        self._incoming = Pieces(memoryview(self._header), *pulled)
        first = [memoryview(self._packed), *([numbers] if len(numbers) else [])]
        self._whole_push = Pieces(*first, *pushed)
        connection.setblocking(True)  # the kernel's time limit needs no system call per message
        limit = _TIMEVAL.pack(int(timeout_seconds), int(timeout_seconds % 1 * 1e6))
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            connection.setsockopt(socket.SOL_SOCKET, option, limit)

    def push(self, version: int) -> None:
        """Send a push computed on weights of `version`."""
        if self._signals is not None:
            self._signals.push()
        self._packed[:] = pack(Header(version, True))
        self._send(self._whole_push.begin_again())

    def pull(self) -> Header:
        """Wait for an answer."""
        incoming = self._incoming.begin_again()
        try:
            while not incoming.complete:
                incoming.receive(self._connection)
        except BlockingIOError:
            raise self._too_late() from None
        except (OSError, EOFError) as error:
            raise self._lost(error) from None
        if self._signals is not None:
            self._signals.await_answer()
        return unpack(self._header)

    def keep(self, version: int) -> None:
        """Tell the server to save its state for a checkpoint; it sends no answer."""
        self._send_header(Header(version, False, keep=True))

    def leave(self, version: int) -> None:
        """Tell the server that no push follows, and close the connection."""
        self._send_header(Header(version, False))
        self._connection.close()

    def _send_header(self, header: Header) -> None:
        self._send(Pieces(memoryview(pack(header))))

    def _send(self, outgoing: Pieces) -> None:
        try:
            outgoing.send(self._connection)
        except OSError as error:
            raise self._lost(error) from None
        if not outgoing.complete:
            raise self._too_late()

    def _lost(self, error: Exception) -> LostPeerError:
        reason = str(error) or "its connection ended"
        return LostPeerError(f"{self._name} is gone: {reason}")

    def _too_late(self) -> TimeoutError:
        return TimeoutError(f"{self._name} is silent for {self._timeout_seconds} s")


def reach(
    name: str,
    address: Address,
    pushed: list[memoryview],
    pulled: memoryview,
    descriptor: int,
    places: Places,
    node: str,
    numbers: memoryview = _NO_NUMBERS,
    share_more: Callable[[socket.socket], Signals] | None = None,
) -> WorkerEnd:
    """Connect this worker on `node` to the process `name` at `address`. `descriptor`,
    `places`: memory of `pushed` and `pulled`, and the offsets in it, which both processes share if
    they are on one node. `numbers`: buffer that follows each header. `share_more`: shares memory of
    a GPU as well, which only processes of one node can. Raises LostPeerError if the process cannot
    be reached, and SettingError if it is to share a GPU and is on another node.
    """
    token, timeout = joined()
    hello = Hello(worker_index(), sum(map(len, pushed)), len(pulled))
    try:
        connected = connect(token, address, hello, node=node, timeout_seconds=timeout)
    except ConnectionError as error:
        raise LostPeerError(f"{name} cannot be reached: {error}") from None
    _, connection, shared = connected
    if not shared:
        if share_more is not None:
            raise other_node(name)
        return WorkerEnd(name, connection, pushed, [pulled], timeout, numbers)
    share(connection, descriptor, places)
    signals = share_more(connection) if share_more is not None else None
    return WorkerEnd(name, connection, [], [], timeout, numbers, signals=signals)
