"""State of a run's processes: whether one has ended, and whether a silent one computes or waits."""

import time
from collections.abc import Callable
from typing import NamedTuple

PERIOD = 1.0  # s between two signs of life
_began: float | None = None  # monotonic clock [s] when the present work began; None while waiting


class Lost(NamedTuple):
    """Message that a worker has ended. `reason`: what its server observed."""

    reason: str


class LostPeerError(ConnectionError):
    """Error of a connection whose other process has ended; its launcher says why."""


def work() -> None:
    """Note that this process begins to compute, and waits for no other process."""
    global _began
    _began = time.monotonic()


def rest() -> None:
    """Note that this process may wait for others from now on."""
    global _began
    _began = None


class Stillness:
    """Adds up the seconds in which this process stood still: stopped, or its machine suspended.

    `look` is called about every PERIOD seconds. If it comes later, and the process has not computed
    meanwhile, the process stood still. `boot_time`: clock that also runs while the machine is
    suspended. `computed`: seconds of CPU time of the process.
    """

    def __init__(
        self,
        boot_time: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
        computed: Callable[[], float] = time.process_time,
    ) -> None:
        self._boot_time, self._computed = boot_time, computed
        self._looked = boot_time(), computed()
        self.seconds = 0.0

    def look(self) -> None:
        now = self._boot_time(), self._computed()
        passed, worked = (after - before for after, before in zip(now, self._looked, strict=True))
        self._looked = now
        missed = passed - PERIOD - worked
        if missed > 2 * PERIOD:  # a busy machine may hold up a sign
            self.seconds += missed


def seconds_of_work() -> float:
    """Return how long this process has computed without waiting; 0 while it may wait."""
    began = _began
    return 0.0 if began is None else time.monotonic() - began
