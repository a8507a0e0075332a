"""Batches, and the time that a worker waits for them."""

import time
from collections.abc import Collection, Iterator
from typing import Any

from paceline.cluster.training_clock import TrainingClock


class TimedBatches:
    """Iterates over `batches` [a sized iterable]; the first one asked for starts the clock."""

    def __init__(self, batches: Collection[Any], clock: TrainingClock) -> None:
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
            batch = next(source)
            self.seconds_waiting += time.perf_counter() - before
            self.drawn += 1
            yield batch
