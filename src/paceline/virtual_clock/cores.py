"""Processors on the virtual clock: of each process its own, or shared by all of a machine.

Shared cores serve all busy processes alike (processor sharing; Kleinrock 1976, Queueing Systems,
volume 2, section 4.4), as a fair scheduler does in the long run.
"""

import heapq
from abc import ABC, abstractmethod
from itertools import count
from typing import ClassVar

from paceline.timing.shared_cores import SharedCores
from paceline.virtual_clock.kernel import Event, Kernel, Moment, Plan


class AbstractCores(ABC):
    """Processors of a cluster. `shared`: True if work lasts longer while others are busy."""

    shared: ClassVar[bool]

    @abstractmethod
    def busy(self, seconds: float) -> Moment | Event:
        """Return the end of work, begun now, that takes a process alone `seconds`."""


class OwnCores(AbstractCores):
    """Each process has a processor of its own."""

    shared = False

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def busy(self, seconds: float) -> Moment:
        return self._kernel.after(seconds)


class FairCores(AbstractCores):
    """All processes share the cores of one machine."""

    shared = True

    def __init__(self, kernel: Kernel, cores: SharedCores) -> None:
        self._kernel = kernel
        self._cores = cores
        self._shares: dict[int, float] = {}  # by number of busy processes
        self._done = 0.0  # that each busy process has computed, since it was busy [seconds]
        self._since = 0.0  # of which moment that is
        self._ends: list[tuple[float, int, Event]] = []  # heap, by `_done` at the end
        self._order = count()
        self._plan: Plan | None = None

    def busy(self, seconds: float) -> Event:
        self._advance()
        ended = Event()
        heapq.heappush(self._ends, (self._done + seconds, next(self._order), ended))
        self._replan()
        return ended

    def _share(self) -> float:
        """Return the speed of each busy process; alone it has 1."""
        busy = len(self._ends)
        if busy not in self._shares:
            self._shares[busy] = self._cores.speed(busy) / busy
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


def cores_of(shared: SharedCores | None, kernel: Kernel) -> AbstractCores:
    """Return the processors of a cluster; `shared`: None if each process has its own."""
    return OwnCores(kernel) if shared is None else FairCores(kernel, shared)
