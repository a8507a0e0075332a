"""Server's end of the wire to workers: shared memory inside a node, TCP between nodes.

Each message begins with a header over a socket. In a push, the numbers among the options of the
worker's optimizer follow, then the server's part of the gradient, and for server 0 the worker's
BatchNorm statistics. An answer contains the server's part of the weights.

Inside a node the worker shares its buffers with the servers, in host memory or, if both are on
GPUs, there: a push copies nothing, an answer is one copy. Between nodes bodies are sent from and
received into tensor memory. If a connection does not accept an answer at once, the rest is sent
from a copy while the server continues.
"""

import selectors
import socket
import time
from collections import deque
from collections.abc import Sequence

import torch
from torch import Tensor

from paceline.exchange.liveness import Lost
from paceline.exchange.process_group import joined, send_json
from paceline.exchange.wire.connection import (
    HEADER_BYTES,
    Header,
    Hello,
    Listener,
    Pieces,
    bytes_of,
    pack,
    unpack,
)
from paceline.exchange.wire.shared_memory import (
    Signals,
    other_node,
    part,
    take_from_gpu,
    take_share,
)

_BOTH = selectors.EVENT_READ | selectors.EVENT_WRITE
_PAUSE = 5e-5  # seconds; a GPU computes a push for milliseconds, in which looks would take a core


class ServerEnd:
    """Server's end of a connection to one worker; it never blocks.

    `gradient`, `statistics`: buffers for a push, valid until its answer. `answered`: the worker's
    weights in shared memory; None if they are sent over the connection. `num_numbers`: how many
    numbers follow the header of a push. `signals`: of memory that is shared on a GPU, else None.
    """

    def __init__(
        self,
        connection: socket.socket,
        gradient: Tensor,
        statistics: Tensor,
        answered: Tensor | None,
        num_numbers: int = 0,
        signals: Signals | None = None,
    ) -> None:
        self.signals = signals
        self.numbers = torch.zeros(num_numbers, dtype=torch.float64)
        self.connection, self.gradient = connection, gradient
        self.landed = bytes_of(statistics)
        self.push_bytes = gradient.nbytes + statistics.nbytes
        self._answered = answered
        self._version: int | None = None  # latest that was answered; None: no message may come
        self._header = bytearray(HEADER_BYTES)
        self._body = [bytes_of(self.numbers)] if num_numbers else []
        if answered is None:
            self._body += [bytes_of(gradient), self.landed]
        self._incoming = Pieces(memoryview(self._header), *self._body)
        self._packed = bytearray(HEADER_BYTES)  # header of the answer
        self._outgoing = Pieces()
        self._answering: Tensor | None = None  # weights whose memory `_outgoing` sends
        connection.setblocking(False)

    def receive(self) -> Header | None:
        """Read available bytes; return the header once a message is complete, else None. Raises
        ConnectionError at the end of the connection, and for an invalid header.
        """
        try:
            self._incoming.receive(self.connection)
        except BlockingIOError:
            return None
        except EOFError:
            within = " in the middle of a push" if self._incoming.done else ""
            raise ConnectionError(f"its connection ended{within}") from None
        if not self._incoming.has_first:
            return None
        try:
            header = unpack(self._header)
        except ValueError as error:
            raise ConnectionError(f"it broke the protocol: {error}") from None
        if self._version is None or header.version > self._version:
            raise ConnectionError(f"it broke the protocol: an untimely {header}")
        if header.proceed and not self._incoming.complete:
            return None
        self._incoming.begin_again()
        if not header.keep:
            self._version = None
        return header

    def answer(self, header: Header, weights: Tensor) -> None:
        """Begin to send the weights, unchanged while the answer is `pending`. Raises OSError."""
        self._version = header.version
        if self._answered is not None:
            self._answered.copy_(weights)
            if self.signals is not None:
                self.signals.answer(weights.device)
        self._packed[:] = pack(header)
        if weights is not self._answering:
            self._outgoing = Pieces(*self._answer_of(weights))
            self._answering = weights
        self._outgoing.begin_again()
        self.flush()

    def keep(self, weights: Tensor) -> None:
        """Send the rest of a `pending` answer from `weights`, a copy, by `flush`."""
        self._outgoing.replace(*self._answer_of(weights))
        self._answering = None

    def flush(self) -> None:
        """Continue to send a `pending` answer. Raises OSError."""
        self._outgoing.send(self.connection)

    @property
    def pending(self) -> bool:
        """True if part of an answer is not sent yet."""
        return not self._outgoing.complete

    def _answer_of(self, weights: Tensor) -> list[memoryview]:
        body = [bytes_of(weights)] if self._answered is None else []
        return [memoryview(self._packed), *body]


class Computing:
    """Pushes whose header has come while a GPU still computes them, until they are complete."""

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout_seconds = timeout_seconds
        self._held: dict[int, tuple[Header, Signals, float]] = {}

    def __bool__(self) -> bool:
        return bool(self._held)

    def hold(self, worker: int, header: Header, signals: Signals) -> None:
        self._held[worker] = header, signals, time.monotonic() + self._timeout_seconds

    def forget(self, worker: int) -> None:
        """Drop the push of a worker that is lost, if it has one here."""
        self._held.pop(worker, None)

    def completed(self, *, idle: bool) -> list[tuple[int, Header]]:
        """Return the pushes that are complete, and forget them. If there are none, and the server
        is `idle`, pause before the next look. Raises TimeoutError.
        """
        found: list[tuple[int, Header]] = []
        for worker, (header, signals, deadline) in [*self._held.items()]:
            if signals.is_complete():
                del self._held[worker]
                found.append((worker, header))
            elif time.monotonic() > deadline:
                message = f"the GPU of worker {worker} computes for {self._timeout_seconds} s"
                raise TimeoutError(message)
        if idle and self._held and not found:
            time.sleep(_PAUSE)
        return found


class ServerWire:
    """Connections of a server to its workers, which receives messages in the order of arrival.

    `weights` [num_weights]: the server's part, sent in answers; on a GPU only if all workers are on
    GPUs of this machine. `workers`: their ranks. `num_numbers`: how many options of the optimizer
    come with each push. `at_once`: True if no worker goes on before all have pushed. Pushes on GPUs
    are then returned while they are still computed, and only the server's GPU waits. Otherwise they
    are returned as they are completed, so that no worker waits for another's GPU.
    """

    def __init__(
        self,
        weights: Tensor,
        num_statistics: int,
        workers: Sequence[int],
        num_numbers: int = 0,
        *,
        at_once: bool = False,
    ) -> None:
        self._at_once = at_once
        self.weights, self._workers, self._num_numbers = weights, workers, num_numbers
        dtype = weights.dtype
        self._statistics = {each: torch.zeros(num_statistics, dtype=dtype) for each in workers}
        # Where caches are cold from training, a call into torch costs as much as a small message.
        self._kept = {worker: bytes_of(each) for worker, each in self._statistics.items()}
        self._pull_bytes = weights.nbytes
        push_bytes = self._pull_bytes + num_statistics * dtype.itemsize
        token, self._timeout_seconds = joined()
        hellos = [Hello(worker, push_bytes, self._pull_bytes) for worker in workers]
        self._listener = Listener(token, hellos)
        self._ends: dict[int, ServerEnd] = {}
        self._selector = selectors.DefaultSelector()
        self._messages: deque[tuple[int, Header | Lost]] = deque()
        self._copied: Tensor | None = None  # the present weights, for answers under way
        self._deadlines: dict[int, float] = {}  # of answers under way, by worker
        self._computing = Computing(self._timeout_seconds)
        self._unread: set[int] = set()  # workers whose statistics are not copied yet
        self.bytes_sent = 0
        self.bytes_received = 0

    def gradient(self, worker: int) -> Tensor:
        """Return the gradient of the worker's last push [num_weights], valid until the answer."""
        return self._ends[worker].gradient

    def statistics(self, worker: int) -> Tensor:
        """Return the BatchNorm statistics of the worker's last push [num_statistics]."""
        if worker in self._unread:
            self._unread.remove(worker)
            torch.cuda.current_stream(self.weights.device).synchronize()
            self._kept[worker][:] = self._ends[worker].landed
        return self._statistics[worker]

    def numbers(self, worker: int) -> list[float]:
        """Return the options of the optimizer in the worker's last push."""
        return self._ends[worker].numbers.tolist()

    def receive(self) -> tuple[int, Header | Lost]:
        """Wait for the next message of any worker; the body of a push is then in
        `gradient(worker)`. Lost stands for a worker that disconnected or sent an invalid message;
        an incomplete push of it is discarded. Raises TimeoutError.
        """
        self._connect_workers()
        self._copied = None  # the caller may have changed the weights
        while not self._messages:
            if not self._attend():
                raise TimeoutError(f"every worker is silent for {self._timeout_seconds} s")
        return self._messages.popleft()

    def answer(self, worker: int, header: Header) -> None:
        """Begin to send the present weights, which may change afterwards. `receive` and `flush`
        continue; `receive` reports the loss of a worker.
        """
        self._connect_workers()
        end = self._ends[worker]
        if end.connection.fileno() < 0:  # closed
            return
        try:
            end.answer(header, self.weights)
        except OSError as error:
            return self._report_lost(worker, str(error))
        self.bytes_sent += self._pull_bytes
        if end.pending:
            if self._copied is None:
                self._copied = self.weights.clone()
            end.keep(self._copied)
            self._deadlines[worker] = time.monotonic() + self._timeout_seconds
            self._selector.modify(end.connection, _BOTH, worker)

    def flush(self) -> None:
        """Wait until all answers are sent, before any other wait; receive pushes meanwhile."""
        while self._deadlines:
            self._attend()

    def _attend(self) -> bool:
        """Serve all connections that are ready; return False if none is before the timeout. Do not
        wait for any while pushes of GPUs are not complete.
        """
        ready = self._selector.select(0 if self._computing else self._timeout_seconds)
        for key, events in ready:
            try:
                self._attend_to(key.data, events)
            except OSError as error:
                self._report_lost(key.data, str(error))
        for worker in [each for each, at in self._deadlines.items() if at < time.monotonic()]:
            self._report_lost(worker, f"it takes no answer for {self._timeout_seconds} s")
        completed = self._computing.completed(idle=not ready)
        for worker, header in completed:
            self._take_push(worker, header)
        return bool(ready or completed or self._computing)

    def _attend_to(self, worker: int, events: int) -> None:
        end = self._ends[worker]
        if events & selectors.EVENT_WRITE:
            end.flush()
            if end.pending:
                self._deadlines[worker] = time.monotonic() + self._timeout_seconds
            else:
                del self._deadlines[worker]
                self._selector.modify(end.connection, selectors.EVENT_READ, worker)
        if events & selectors.EVENT_READ and (header := end.receive()) is not None:
            if header.proceed:
                self.bytes_received += end.push_bytes
                if end.signals is not None and not self._at_once:
                    return self._computing.hold(worker, header, end.signals)
                return self._take_push(worker, header)
            if not header.keep:
                self._close(worker)
            self._messages.append((worker, header))

    def _take_push(self, worker: int, header: Header) -> None:
        end = self._ends[worker]
        if end.signals is not None:
            end.signals.await_push(self.weights.device)
        if end.signals is None or end.signals.is_complete():
            self._kept[worker][:] = end.landed  # a snapshot reads them after the answer
            self._unread.discard(worker)
        else:
            self._unread.add(worker)
        self._messages.append((worker, header))

    def _report_lost(self, worker: int, reason: str) -> None:
        self._computing.forget(worker)
        self._close(worker)
        self._messages.append((worker, Lost(reason)))

    def _close(self, worker: int) -> None:
        self._deadlines.pop(worker, None)
        self._selector.unregister(self._ends[worker].connection)
        self._ends[worker].connection.close()

    def _connect_workers(self) -> None:
        """Send this server's address to all workers, and wait until they are connected."""
        if self._ends:
            return
        for worker in self._workers:
            send_json(self._listener.address, worker)
        for worker, connection, shared in self._listener.meet(self._timeout_seconds):
            self._ends[worker] = self._end(worker, connection, shared)
            self._selector.register(connection, selectors.EVENT_READ, worker)

    def _end(self, worker: int, connection: socket.socket, shared: bool) -> ServerEnd:
        statistics, weights, numbers = self._statistics[worker], self.weights, self._num_numbers
        if not shared:
            if weights.is_cuda:
                raise other_node(f"worker {worker}")
            gradient, landed = torch.zeros_like(weights), torch.zeros_like(statistics)
            return ServerEnd(connection, gradient, landed, None, numbers)
        memory, places = take_share(connection)
        counts = (len(weights), len(statistics), len(weights))
        begins = zip(places, counts, strict=True)
        pushed, landed, answered = (part(memory, *each, weights.dtype) for each in begins)
        if not weights.is_cuda:
            return ServerEnd(connection, pushed, landed, answered, num_numbers=numbers)
        (pushed, answered), signals = take_from_gpu(connection, len(weights), weights.dtype)
        return ServerEnd(connection, pushed, landed, answered, num_numbers=numbers, signals=signals)
