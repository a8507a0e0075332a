"""The event kernel of the virtual clock.

A process is a generator. It yields a Moment or an Event to wait for it, or None to let all that
goes on at this instant go on first; what an event happens with is the value of the `yield`.
Nothing goes on inside a call: `happen` only lines up those that wait, so that whoever calls it can
finish what it is doing.
"""

import heapq
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any, NamedTuple

from paceline.engine.links import Process


class Moment(NamedTuple):
    """A time on the virtual clock [virtual seconds]."""

    time: float


class Event:
    """Something that happens once, with a value."""

    def __init__(self) -> None:
        self.has_happened = False
        self.value: Any = None
        self.waiting: list[Running] = []


class Running(NamedTuple):
    """A process that has started, and the event of its end."""

    process: Process[Any]
    end: Event


class Kernel:
    """Runs processes in order of time; of two at one time, the one that was planned first.

    `now`: virtual seconds. `num_processes`: those that have started and not ended.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.num_processes = 0
        self._planned: list[tuple[float, int, Callable[[], object]]] = []
        self._order = count()
        self._ready: deque[tuple[Running, Any]] = deque()

    def __len__(self) -> int:
        """Number of planned calls."""
        return len(self._planned)

    def at(self, time: float, call: Callable[[], object]) -> None:
        """Plan `call` for `time`, which must not lie before now."""
        if time < self.now:
            raise ValueError(f"planned for {time}, and it is {self.now}")
        heapq.heappush(self._planned, (time, next(self._order), call))

    def after(self, seconds: float) -> Moment:
        return Moment(self.now + seconds)

    def start(self, process: Process[Any]) -> Event:
        """Run a process to its first wait; return its end, which happens with what it returns."""
        running = Running(process, Event())
        self.num_processes += 1
        self._resume(running, None)
        return running.end

    def happen(self, event: Event, value: Any = None) -> None:
        """Let those who wait for `event` go on, in the order in which they came."""
        event.has_happened, event.value = True, value
        self._ready.extend((running, value) for running in event.waiting)
        event.waiting = []

    def advance(self) -> None:
        """Go to the next planned call, and on until every process waits."""
        self.now, _, call = heapq.heappop(self._planned)
        call()
        self.settle()

    def settle(self) -> None:
        """Run every process that can go on at this instant."""
        while self._ready:
            self._resume(*self._ready.popleft())

    def _resume(self, running: Running, value: Any) -> None:
        try:
            awaited = running.process.send(value)
        except StopIteration as stop:
            self.num_processes -= 1
            self.happen(running.end, stop.value)
            return
        if isinstance(awaited, Moment):
            self.at(awaited.time, lambda: self._resume(running, None))
        elif awaited is None or awaited.has_happened:
            self._ready.append((running, awaited and awaited.value))
        else:
            awaited.waiting.append(running)
