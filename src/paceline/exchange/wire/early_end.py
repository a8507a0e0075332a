"""Worker's end of a connection whose pushes leave while backward computes the rest of them."""

from collections.abc import Sequence
from queue import SimpleQueue
from threading import Thread
from typing import NamedTuple

from paceline.exchange.wire.header import Header
from paceline.exchange.wire.worker_end import WorkerEnd


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
        """Wait until the push has left, and for its answer. Raises LostPeerError, TimeoutError."""
        pushed, self._pushed = self._pushed, False
        if pushed and (error := self._done.get()) is not None:
            raise error
        return self._end.pull()

    def keep(self, version: int) -> None:
        """Tell the server to keep its state for a checkpoint, when no push is under way."""
        self._end.keep(version)

    def ask_to_stop(self) -> None:
        """Ask the server, with the next push, to stop all workers for a checkpoint."""
        self._end.ask_to_stop()

    def leave(self, version: int) -> None:
        """Announce to the server that no push follows, and close the connection."""
        self._orders.put(None)
        self._thread.join()
        self._end.leave(version)

    def _send_all(self) -> None:
        num_sent, error = 0, None
        while (order := self._latest()) is not None:
            if error is None:
                error = self._send(range(num_sent, order.num_parts), order.version)
            num_sent = 0 if order.complete else order.num_parts
            if order.complete:
                self._done.put(error)

    def _latest(self) -> _Order | None:
        """Wait for an order; what it orders includes what those before it did."""
        order = self._orders.get()
        while order is not None and not self._orders.empty():
            order = self._orders.get()
        return order

    def _send(self, parts: range, version: int) -> Exception | None:
        try:
            self._end.push_parts(parts, version)
        except Exception as error:
            return error
        return None
