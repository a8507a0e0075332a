"""Event kernel of the virtual clock.

A process is a generator. It yields a Moment or an Event to wait for it, or None to wait until all
other processes that can continue at this instant have done so; the value of an event is the value
of the `yield`. `happen` only schedules the waiting processes: none continues before the calling
process waits itself.
"""

import heapq
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any, NamedTuple

from paceline.clock.links import Process


class Moment(NamedTuple):
    """Time on the virtual clock [virtual seconds]."""

    time: float


class Event:
    """Event that happens once, with a value."""

    __slots__ = ("has_happened", "value", "waiting")

    def __init__(self) -> None:
        self.has_happened = False
        self.value: Any = None
        self.waiting: list[Running] = []


# Time, order of planning, and call, which is None if it has been cancelled, or waiting process.
Plan = list[Any]


class Running(NamedTuple):
    """Process that has started, and the event of its end."""

    process: Process[Any]
    end: Event


class Kernel:
    """Runs processes in order of time; of two at one time, the one that was planned first.

    `now`: virtual seconds. `num_processes`: number of processes that have started and not ended.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.num_processes = 0
        self._planned: list[Plan] = []
        self._order = count()
        self._ready: deque[tuple[Running, Any]] = deque()

    def __len__(self) -> int:
        """Return the number of planned calls, with those that have been cancelled."""
        return len(self._planned)

    def at(self, time: float, call: "Callable[[], object] | Running") -> Plan:
        """Plan `call` for `time`. Raises ValueError if that is before now."""
        if time < self.now:
            raise ValueError(f"planned for {time}, and it is {self.now}")
        plan: Plan = [time, next(self._order), call]
        heapq.heappush(self._planned, plan)
        return plan

    def cancel(self, plan: Plan) -> None:
        """Remove a planned call, whose time may then never come."""
        plan[2] = None

    def after(self, seconds: float) -> Moment:
        """Return the moment `seconds` after now."""
        return Moment(self.now + seconds)

    def start(self, process: Process[Any]) -> Event:
        """Run a process to its first wait; return the event of its end, with its return value."""
        running = Running(process, Event())
        self.num_processes += 1
        self._resume(running, None)
        return running.end

    def happen(self, event: Event, value: Any = None) -> None:
        """Schedule the processes that wait for `event`, in the order of their arrival."""
        event.has_happened, event.value = True, value
        if event.waiting:
            self._ready.extend([(running, value) for running in event.waiting])
            event.waiting = []

    def advance(self) -> None:
        """Advance to the next planned call, and run until every process waits."""
        time, _, call = heapq.heappop(self._planned)
        if call is not None:
            self.now = time
            if isinstance(call, Running):
                self._resume(call, None)
            else:
                call()
            self.settle()

    def settle(self) -> None:
        """Run every process that can continue at this instant."""
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
            self.at(awaited.time, running)
        elif awaited is None or awaited.has_happened:
            self._ready.append((running, awaited and awaited.value))
        else:
            awaited.waiting.append(running)
