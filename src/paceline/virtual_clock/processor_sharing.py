"""Work that is served all at once, each piece at the same speed (Kleinrock 1976, Queueing Systems,
volume 2, section 4.4): what a fair scheduler, or one link for fair flows, does in the long run.
"""

import heapq
from collections.abc import Callable
from itertools import count

from paceline.virtual_clock.kernel import Event, Kernel, Plan


class ProcessorSharing:
    """Server of all its work at once. `speed(n)`: of n pieces of work together; alone it is 1."""

    def __init__(self, kernel: Kernel, speed: Callable[[int], float]) -> None:
        self._kernel, self._speed = kernel, speed
        self._shares: dict[int, float] = {}  # by number of pieces
        self._done = 0.0  # of each piece, since it was begun [seconds]
        self._since = 0.0  # of which moment that is
        self._ends: list[tuple[float, int, Event]] = []  # heap, by `_done` at the end
        self._order = count()
        self._plan: Plan | None = None

    def begin(self, seconds: float) -> Event:
        """Begin work that alone takes `seconds`; return its end."""
        self._advance()
        ended = Event()
        heapq.heappush(self._ends, (self._done + seconds, next(self._order), ended))
        self._replan()
        return ended

    def _share(self) -> float:
        """Return the speed of each piece of work."""
        busy = len(self._ends)
        if busy not in self._shares:
            self._shares[busy] = self._speed(busy) / busy
        return self._shares[busy]

    def _advance(self) -> None:
        if self._ends:
            self._done += (self._kernel.now - self._since) * self._share()
        self._since = self._kernel.now

    def _replan(self) -> None:
        if self._plan is not None:
            self._kernel.cancel(self._plan)
        seconds = max(0.0, self._ends[0][0] - self._done) / self._share()
        self._plan = self._kernel.at(self._kernel.now + seconds, self._end)

    def _end(self) -> None:
        self._plan = None
        self._advance()
        done, _, ended = heapq.heappop(self._ends)
        self._done = done  # exactly
        self._kernel.happen(ended)
        if self._ends:
            self._replan()
