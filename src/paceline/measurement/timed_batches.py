"""Measures the time that a worker waits for its batches."""

import time
from collections.abc import Iterator
from typing import Any, Protocol

from paceline.clock.reports import TrainingClock
from paceline.exchange.activity import rest, work


class Batches(Protocol):
    """Iterable of batches that knows their number."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Any]: ...

    def beginning_at(self, first: int) -> Iterator[Any]: ...


class TimedBatches:
    """Iterator over `batches` that starts `clock` just before it draws the first one.

    `waits`: whether others are waited for inside a step, so that it is no process's own work.
    `seconds_waiting` is the time spent in drawing; `drawn` is the number of batches drawn. Both,
    and the clock, go on where a checkpoint was written.
    """

    def __init__(self, batches: Batches, clock: TrainingClock, *, waits: bool = False) -> None:
        self._batches, self._begin = batches, rest if waits else work
        self._clock = clock
        self.seconds_waiting = 0.0
        self.drawn = 0
        self._seconds_before = 0.0  # of the training clock, before the run was resumed

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Any]:
        first = self.drawn
        source = self._batches.beginning_at(first)
        for n in range(first, len(self._batches)):
            if n == first:
                self._clock.start(self._seconds_before)
            self._begin()
            before = time.perf_counter()
            batch = next(source, None)
            if batch is None:  # the virtual clock ended a run that diverged
                return
            self.seconds_waiting += time.perf_counter() - before
            self.drawn += 1
            self._begin()
            yield batch

    def state_dict(self) -> dict[str, float]:
        return {
            "seconds_waiting": self.seconds_waiting,
            "drawn": self.drawn,
            "seconds": self._clock.seconds(),
        }

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.seconds_waiting, self.drawn = state["seconds_waiting"], int(state["drawn"])
        self._seconds_before = state["seconds"]
