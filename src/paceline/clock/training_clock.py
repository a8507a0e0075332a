"""Training clock, by which throughput and time to accuracy are measured."""

import time
from collections.abc import Generator
from contextlib import contextmanager


class TrainingClock:
    """Seconds since `start` without those inside `stopped()`, for snapshots and evaluation."""

    def __init__(self) -> None:
        self.start()

    def start(self, seconds: float = 0.0) -> None:
        """Begin to count; `seconds`: of the run before, if it is resumed."""
        self.started = time.time()  # seconds since 1970
        self._start = time.perf_counter() - seconds
        self._stopped = 0.0
        self._stopped_at: float | None = None

    def seconds(self) -> float:
        now = time.perf_counter() if self._stopped_at is None else self._stopped_at
        return now - self._start - self._stopped

    @contextmanager
    def stopped(self) -> Generator[None]:
        self._stopped_at = before = time.perf_counter()
        try:
            yield
        finally:
            self._stopped_at = None
            self._stopped += time.perf_counter() - before
