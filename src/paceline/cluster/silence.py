"""Watch over processes that give signs of life: which of them is silent, and for how long."""

import time
from collections.abc import Iterable

PERIOD = 1.0  # s between two signs of life
_LEAST = 5 * PERIOD  # a busy machine may hold up a sign


class Silence:
    """Silence of the processes of a run, by rank.

    `seconds`: of silence after which a process counts as hung. Time in which the watch itself was
    stopped does not count.
    """

    def __init__(self, ranks: Iterable[int], seconds: float) -> None:
        self._limit = max(seconds, _LEAST)
        self._unheard = dict.fromkeys(ranks, 0.0)
        self._working = dict.fromkeys(self._unheard, 0.0)
        self._looked = time.monotonic()

    def hear(self, rank: int, seconds_of_work: float) -> None:
        """Note a sign of life, by a process whose step goes on for so long without others."""
        self._unheard[rank], self._working[rank] = 0.0, seconds_of_work

    def pass_time(self) -> None:
        """Count the time since the last call, after all signs that are there were heard."""
        now = time.monotonic()
        for rank in self._unheard:
            self._unheard[rank] += min(now - self._looked, 2 * PERIOD)
        self._looked = now

    def of(self, rank: int) -> str | None:
        """Return in what way a process is silent; None if it is not."""
        if self._unheard[rank] > self._limit:
            return f"silent for {self._limit:g} s: stopped, or hung"
        if self._working[rank] > self._limit:
            return f"silent for {self._limit:g} s in a step of its own"
        return None
