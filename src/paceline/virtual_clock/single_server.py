"""A process that does one thing at a time."""

from collections import deque

from paceline.engine.links import Process
from paceline.virtual_clock.kernel import Event, Kernel


class SingleServer:
    """A queue with one server: whoever has entered is served until it leaves.

    Those who wait are served in the order in which they came, urgent ones before the others.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._urgent: deque[Event] = deque()
        self._waiting: deque[Event] = deque()
        self._busy = False

    def enter(self, *, urgent: bool = False) -> Process[None]:
        """Wait until the server is free, and occupy it."""
        if self._busy:
            freed = Event()
            (self._urgent if urgent else self._waiting).append(freed)
            yield freed
        self._busy = True

    def leave(self) -> None:
        """Hand the server over to the next in line."""
        line = self._urgent or self._waiting
        self._busy = bool(line)
        if line:
            self._kernel.happen(line.popleft())
