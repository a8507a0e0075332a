"""Queue in front of a process that does one thing at a time."""

from collections import deque

from paceline.clock.links import Process
from paceline.clock.virtual.kernel import Event, Kernel


class SingleServer:
    """Queue with one server, which a process occupies from `enter` to `leave`.

    Waiting processes are served in the order of their arrival, urgent ones before the others.
    `busy_seconds`: virtual seconds in which it served.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._urgent: deque[Event] = deque()
        self._waiting: deque[Event] = deque()
        self._busy = False
        self._since = 0.0
        self.busy_seconds = 0.0

    def enter(self, *, urgent: bool = False) -> Process[None]:
        """Wait until the server is free, and occupy it."""
        if self._busy:
            freed = Event()
            (self._urgent if urgent else self._waiting).append(freed)
            yield freed
        self._busy, self._since = True, self._kernel.now

    def leave(self) -> None:
        """Free the server for the next process in the queue."""
        self.busy_seconds += self._kernel.now - self._since
        line = self._urgent or self._waiting
        self._busy = bool(line)
        if line:
            self._kernel.happen(line.popleft())
