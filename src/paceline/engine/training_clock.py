"""Training clock, by which throughput and time to accuracy are measured."""

import time
from collections.abc import Generator
from contextlib import contextmanager


class TrainingClock:
    """Seconds since `start` without those inside `stopped()`, for snapshots and evaluation."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        self.started = time.time()  # seconds since 1970
        self._start = time.perf_counter()
        self._stopped = 0.0

    def seconds(self) -> float:
        return time.perf_counter() - self._start - self._stopped

    @contextmanager
    def stopped(self) -> Generator[None]:
        before = time.perf_counter()
        try:
            yield
        finally:
            self._stopped += time.perf_counter() - before
