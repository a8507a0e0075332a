"""A process that does one thing at a time."""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from paceline.virtual_clock.events import EventQueue


class _Job(NamedTuple):
    seconds: float
    done: Callable[[float], None]  # gets the time at which the job was begun


class Station:
    """Jobs in the order in which they came, but answers to what has just been done first."""

    def __init__(self, events: EventQueue) -> None:
        self._events = events
        self._line: deque[_Job] = deque()
        self._busy = False

    def do(self, seconds: float, done: Callable[[float], None], *, first: bool = False) -> None:
        job = _Job(seconds, done)
        if first:
            self._line.appendleft(job)
        else:
            self._line.append(job)
        self._go_on()

    def _go_on(self) -> None:
        if not self._busy and self._line:
            job = self._line.popleft()
            self._busy = True
            now = self._events.now
            self._events.plan(now + job.seconds, partial(self._end, job, now))

    def _end(self, job: _Job, begun: float) -> None:
        job.done(begun)
        self._busy = False
        self._go_on()
