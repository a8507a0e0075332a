"""Work that is served all at once, each piece at a speed by its weight (Kleinrock 1976, Queueing
Systems, volume 2, section 4.4): what a fair scheduler, or one link for fair flows, does in the long
run.
"""

import heapq
from collections.abc import Callable
from itertools import count

from paceline.clock.virtual.kernel import Event, Kernel, Plan


class ProcessorSharing:
    """Server of all its work at once. `speed(n)`: of n pieces of work together; `speed(1)` is 1."""

    def __init__(self, kernel: Kernel, speed: Callable[[int], float]) -> None:
        self._kernel, self._speed = kernel, speed
        self._speeds: dict[int, float] = {}  # by number of pieces
        self._done = 0.0  # of each piece of weight 1, since the first was begun [seconds]
        self._since = 0.0  # of which moment that is
        # heap: `_done` at the end, order of beginning, event of the end, weight
        self._ends: list[tuple[float, int, Event, float]] = []
        self._weight = 0.0  # of all pieces
        self._order = count()
        self._plan: Plan | None = None

    def begin(self, seconds: float, weight: float = 1.0) -> Event:
        """Begin work that takes `seconds` by itself; return its end."""
        self._advance()
        ended, end = Event(), self._done + seconds / weight
        heapq.heappush(self._ends, (end, next(self._order), ended, weight))
        self._weight += weight
        self._replan()
        return ended

    def _share(self) -> float:
        """Return the speed of a piece of weight 1."""
        busy = len(self._ends)
        if busy not in self._speeds:
            self._speeds[busy] = self._speed(busy)
        return self._speeds[busy] / self._weight

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
        done, _, ended, weight = heapq.heappop(self._ends)
        self._done = done  # exactly
        self._weight = self._weight - weight if self._ends else 0.0
        self._kernel.happen(ended)
        if self._ends:
            self._replan()
