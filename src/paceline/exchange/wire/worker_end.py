"""Connection of a worker to one server, or to another worker that answers like one."""

import selectors
import socket
import struct
from collections.abc import Iterator, Sequence
from queue import SimpleQueue
from threading import Thread
from typing import NamedTuple

from paceline.exchange.liveness import LostPeerError
from paceline.exchange.process_group import joined, worker_index
from paceline.exchange.wire.connection import Address, Hello, connect
from paceline.exchange.wire.frame import HEADER_BYTES, Header, Pieces, pack, unpack
from paceline.exchange.wire.shared_memory import Places, share

_NO_NUMBERS = memoryview(b"")
_TIMEVAL = struct.Struct("ll")  # seconds, microseconds


class WorkerEnd:
    """Worker's end of a connection to one server.

    `name`: name of the other process in error messages. `pushed`, `pulled`: buffers of the bodies
    to send and to receive; empty if memory is `shared`. `numbers`: buffer that follows the header
    of each push. `timeout_seconds`: longest silence of the server. What sends or receives raises
    LostPeerError, and TimeoutError if it waits.
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
        self.num_parts, self.shared = len(pushed), not pulled
        self._header = bytearray(HEADER_BYTES)
        self._asks = False  # the server to stop, with the next push
        self._outgoing, self._incoming = Pieces(), Pieces()  # of a push that does not wait
        connection.setblocking(True)  # the kernel's time limit needs no system call per message
        limit = _TIMEVAL.pack(int(timeout_seconds), int(timeout_seconds % 1 * 1e6))
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            connection.setsockopt(socket.SOL_SOCKET, option, limit)

    def push(self, version: int) -> None:
        """Send a push computed on weights of `version`."""
        self.push_parts(range(self.num_parts), version)

    def push_parts(self, parts: range, version: int) -> None:
        """Send some buffers of a push, after its header if they are the first ones."""
        self._send_all(self._push_of(parts, version))

    def pull(self) -> Header:
        """Wait for an answer."""
        incoming = Pieces(memoryview(self._header), *self._pulled)
        while not incoming.complete:
            if not self._receive(incoming):
                raise self.too_late()
        return unpack(self._header)

    def fileno(self) -> int:
        """Return the connection's descriptor, to wait for until it takes or has more."""
        return self._connection.fileno()

    def begin_push(self, version: int) -> None:
        """Begin a push, which `send_more` sends, and its answer, which `receive_more` takes."""
        self._outgoing = self._push_of(range(self.num_parts), version)
        self._incoming = Pieces(memoryview(self._header), *self._pulled)

    def send_more(self) -> bool:
        """Send what is taken; return True if the push has left."""
        return self._send(self._outgoing, socket.MSG_DONTWAIT)

    def receive_more(self) -> Header | None:
        """Take what has come; return the header of a complete answer."""
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

    def _push_of(self, parts: range, version: int) -> Pieces:
        begin: list[memoryview] = []
        if parts.start == 0:
            asks, self._asks = self._asks, False
            begin = [memoryview(pack(Header(version, True, stop=asks))), *self._numbers]
        return Pieces(*begin, *self._pushed[parts.start : parts.stop])

    def _receive(self, incoming: Pieces, flags: int = 0) -> bool:
        """Read once; return False if nothing has come."""
        try:
            incoming.receive(self._connection, flags)
        except BlockingIOError:
            return False
        except (OSError, EOFError) as error:
            raise self._lost(error) from None
        return True

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
    processes share if they are on one node. `numbers`: buffer that follows each header. Raises
    LostPeerError if the process cannot be reached or does not know the run's secret.
    """
    secret, timeout = joined()
    hello = Hello(worker_index(), sum(map(len, pushed)), len(pulled))
    try:
        connection, shared = connect(secret, address, hello, node=node, timeout_seconds=timeout)
    except ConnectionError as error:
        raise LostPeerError(f"{name} cannot be reached: {error}") from None
    if not shared:
        return WorkerEnd(name, connection, pushed, [pulled], timeout, numbers)
    share(connection, descriptor, places)
    return WorkerEnd(name, connection, [], [], timeout, numbers)


def push_pull(ends: Sequence[WorkerEnd], versions: Sequence[int]) -> list[Header]:
    """Push to all `ends` in order, computed on weights of `versions`; return the answers' headers.

    The first server answers while the others are still being sent to: both directions of the
    worker's link are in use.
    """
    answers: dict[WorkerEnd, Header] = {}
    turns = iter(zip(ends, versions, strict=True))

    def begin_next() -> None:
        for end, version in turns:
            end.begin_push(version)
            selector.register(end, selectors.EVENT_WRITE)
            return

    with selectors.DefaultSelector() as selector:
        begin_next()
        while len(answers) < len(ends):
            for end, events in _ready(selector, ends[0].timeout_seconds):
                if events & selectors.EVENT_WRITE and end.send_more():
                    selector.modify(end, selectors.EVENT_READ)
                    begin_next()
                if events & selectors.EVENT_READ and (header := end.receive_more()) is not None:
                    selector.unregister(end)
                    answers[end] = header
    return [answers[end] for end in ends]


def _ready(
    selector: selectors.BaseSelector, timeout_seconds: float
) -> Iterator[tuple[WorkerEnd, int]]:
    """Wait for ends that take or have more.

    Raises TimeoutError if none is in time: of a server that takes no push, since those that have
    theirs may wait for it.
    """
    ready = selector.select(timeout_seconds)
    if not ready:  # writing is the greater of the two events
        silent: WorkerEnd = max(selector.get_map().values(), key=lambda key: key.events).fileobj  # type: ignore[assignment]
        raise silent.too_late()
    return ((key.fileobj, events) for key, events in ready)  # type: ignore[misc]


class _Order(NamedTuple):
    """Order to send a push, computed on weights of `version`, up to so many of its parts."""

    num_parts: int
    version: int
    complete: bool


class EarlyEnd:
    """End of a connection over which a thread sends the parts of pushes, in the order of backward.

    `begins`: first weight of each part, from the last part to the first. Backward never waits for
    the connection; the `pull` that follows raises what the thread has met.
    """

    def __init__(self, end: WorkerEnd, begins: Sequence[int]) -> None:
        self._end, self._begins = end, begins
        self.keep, self.ask_to_stop = end.keep, end.ask_to_stop
        self._num_ready = 0  # parts of the push under way
        self._pushed = False  # since the last answer
        self._orders: SimpleQueue[_Order | None] = SimpleQueue()  # None: no more of them
        self._done: SimpleQueue[Exception | None] = SimpleQueue()  # once for each push
        self._thread = Thread(target=self._send_all, daemon=True)
        self._thread.start()

    def push_from(self, first: int, version: int) -> None:
        """Let the parts from the weight `first` on leave, which change no more."""
        before = self._num_ready
        while self._num_ready < len(self._begins) and self._begins[self._num_ready] >= first:
            self._num_ready += 1
        if self._num_ready > before:
            self._orders.put(_Order(self._num_ready, version, complete=False))

    def push(self, version: int) -> None:
        """Let the rest of a push computed on weights of `version` leave."""
        self._num_ready, self._pushed = 0, True
        self._orders.put(_Order(self._end.num_parts, version, complete=True))

    def pull(self) -> Header:
        """Wait until the push has left, and for its answer."""
        pushed, self._pushed = self._pushed, False
        if pushed and (error := self._done.get()) is not None:
            raise error
        return self._end.pull()

    def leave(self, version: int) -> None:
        """Announce to the server that no push follows, and close the connection."""
        self._orders.put(None)
        self._thread.join()
        self._end.leave(version)

    def _send_all(self) -> None:
        num_sent, error = 0, None
        while (order := self._latest()) is not None:
            if error is None:
                try:
                    self._end.push_parts(range(num_sent, order.num_parts), order.version)
                except Exception as met:
                    error = met
            num_sent = 0 if order.complete else order.num_parts
            if order.complete:
                self._done.put(error)

    def _latest(self) -> _Order | None:
        """Wait for an order; what it orders includes what those before it did."""
        order = self._orders.get()
        while order is not None and not self._orders.empty():
            order = self._orders.get()
        return order
