"""Server's end of the wire to workers: shared memory inside a node, TCP between nodes.

Every message is a header over a socket; behind that of a push are the numbers among the options of
the worker's optimizer. The body of a push is the server's part of the gradient,
for server 0 also the worker's BatchNorm statistics; the body of an answer is the server's part of
the weights. Inside a node the worker's buffers are shared with its servers: a push copies nothing,
an answer is one copy. Between nodes bodies follow their headers, from and into tensor memory; what
a connection does not take at once of an answer is sent from a copy, while the server goes on. The
parts of a push that leaves during backward come in the order of backward, from the last.
"""

import selectors
import socket
import time
from collections import deque
from collections.abc import Sequence

import torch
from torch import Tensor

from paceline.exchange.lost import Lost
from paceline.exchange.message import send_json
from paceline.exchange.process_group import joined
from paceline.exchange.shard import backwards
from paceline.exchange.wire.handshake import Hello
from paceline.exchange.wire.header import Header
from paceline.exchange.wire.listener import Listener
from paceline.exchange.wire.pieces import bytes_of
from paceline.exchange.wire.server_end import ServerEnd
from paceline.exchange.wire.shared_memory import part, take_share

_BOTH = selectors.EVENT_READ | selectors.EVENT_WRITE


class ServerWire:
    """Connections of a server to its workers, which takes messages in the order of their arrival.

    `weights` [num_weights]: the server's part, which it sends in answers. `workers`: their ranks.
    `parts`: numbers of weights, in order, of the parts in which pushes leave during backward; none
    if they leave as a whole. `num_numbers`: options of the optimizer in each push.
    """

    def __init__(
        self,
        weights: Tensor,
        num_statistics: int,
        workers: Sequence[int],
        parts: Sequence[int] = (),
        num_numbers: int = 0,
    ) -> None:
        self._num_numbers = num_numbers
        self.weights, dtype = weights, weights.dtype
        self._parts = backwards(parts, 0, len(weights))
        self._statistics = {each: torch.zeros(num_statistics, dtype=dtype) for each in workers}
        # Where caches are cold from training, a call into torch costs as much as a small message.
        self._kept = {worker: bytes_of(each) for worker, each in self._statistics.items()}
        self._pull_bytes = pull_bytes = self.weights.nbytes
        push_bytes = pull_bytes + num_statistics * dtype.itemsize
        self._workers = workers
        secret, self._timeout_seconds = joined()
        self._listener = Listener(
            secret, [Hello(worker, push_bytes, pull_bytes) for worker in self._workers]
        )
        self._ends: dict[int, ServerEnd] = {}
        self._selector = selectors.DefaultSelector()
        self._messages: deque[tuple[int, Header | Lost]] = deque()
        self._copied: Tensor | None = None  # the present weights, for answers under way
        self._deadlines: dict[int, float] = {}  # of answers under way, by worker
        self.bytes_sent = 0
        self.bytes_received = 0

    def gradient(self, worker: int) -> Tensor:
        """Return the gradient of the worker's last push [num_weights], valid until the answer."""
        return self._ends[worker].gradient

    def statistics(self, worker: int) -> Tensor:
        """Return the BatchNorm statistics of the worker's last push [num_statistics]."""
        return self._statistics[worker]

    def numbers(self, worker: int) -> list[float]:
        """Return the options of the optimizer in the worker's last push."""
        return self._ends[worker].numbers.tolist()

    def receive(self) -> tuple[int, Header | Lost]:
        """Wait for the next message of any worker. A push is then in `gradient(worker)`.

        A worker whose connection has ended or whose message is invalid is Lost; a push that it has
        not completed is discarded. Raises TimeoutError.
        """
        self._connect_workers()
        self._copied = None  # the caller may have changed the weights
        while not self._messages:
            if not self._attend():
                raise TimeoutError(f"every worker is silent for {self._timeout_seconds} s")
        return self._messages.popleft()

    def answer(self, worker: int, header: Header) -> None:
        """Begin to send the present weights, which may change afterwards.

        `receive` continues, or `flush`. The loss of a worker is reported by `receive`.
        """
        self._connect_workers()
        end = self._ends[worker]
        if end.closed:
            return
        try:
            end.answer(header, self.weights)
        except OSError as error:
            return self._report_lost(worker, str(error))
        self.bytes_sent += self._pull_bytes
        if end.pending:
            if self._copied is None:
                self._copied = self.weights.clone()
            end.keep(header, self._copied)
            self._deadlines[worker] = time.monotonic() + self._timeout_seconds
            self._selector.modify(end.connection, _BOTH, worker)

    def flush(self) -> None:
        """Wait until all answers are sent, and receive pushes meanwhile; before other waits."""
        while self._deadlines:
            self._attend()

    def _attend(self) -> bool:
        """Serve all connections that are ready; return False if none is before the timeout."""
        ready = self._selector.select(self._timeout_seconds)
        for key, events in ready:
            try:
                self._attend_to(key.data, events)
            except OSError as error:
                self._report_lost(key.data, str(error))
        for worker in [each for each, at in self._deadlines.items() if at < time.monotonic()]:
            self._report_lost(worker, f"it takes no answer for {self._timeout_seconds} s")
        return bool(ready)

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
            self._take(worker, header)

    def _take(self, worker: int, header: Header) -> None:
        if header.proceed:
            end = self._ends[worker]
            self._kept[worker][:] = end.landed  # a snapshot reads them after the answer
            self.bytes_received += end.push_bytes
        elif not header.keep:
            self._close(worker)
        self._messages.append((worker, header))

    def _report_lost(self, worker: int, reason: str) -> None:
        self._close(worker)
        self._messages.append((worker, Lost(reason)))

    def _close(self, worker: int) -> None:
        self._deadlines.pop(worker, None)
        self._selector.unregister(self._ends[worker].connection)
        self._ends[worker].close()

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
        statistics, weights = self._statistics[worker], self.weights
        if not shared:
            gradient = torch.zeros_like(weights)
            landed, numbers = torch.zeros_like(statistics), self._num_numbers
            return ServerEnd(connection, gradient, landed, None, self._parts, numbers)
        memory, places = take_share(connection)
        counts = (len(weights), len(statistics), len(weights))
        begins = zip(places, counts, strict=True)
        pushed, kept, answered = (part(memory, *each, weights.dtype) for each in begins)
        return ServerEnd(connection, pushed, kept, answered, num_numbers=self._num_numbers)
