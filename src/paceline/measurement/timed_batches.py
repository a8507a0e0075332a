"""Measures the time that a worker waits for its batches."""

import time
from collections.abc import Iterator
from typing import Any, Protocol

from paceline.engine.training_clock import TrainingClock


class Batches(Protocol):
    """Iterable of batches that knows their number."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Any]: ...


class TimedBatches:
    """Iterator over `batches` that starts `clock` just before it draws the first one.

    `seconds_waiting` is the time spent in drawing; `drawn` is the number of batches drawn.
    """

    def __init__(self, batches: Batches, clock: TrainingClock) -> None:
        self._batches = batches
        self._clock = clock
        self.seconds_waiting = 0.0
        self.drawn = 0

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Any]:
        source = iter(self._batches)
        for _ in range(len(self._batches)):
            if self.drawn == 0:
                self._clock.start()
            before = time.perf_counter()
            batch = next(source, None)
            if batch is None:  # the virtual clock ended a run that diverged
                return
            self.seconds_waiting += time.perf_counter() - before
            self.drawn += 1
            yield batch
