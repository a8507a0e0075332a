"""Moments at which all workers of a run stop between two steps to write a checkpoint.

If servers grant steps, workers learn of them from the answers, because a worker that servers hold
back must not wait for one that has stopped. Other workers agree through the launcher's store.
"""

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from paceline.exchange.process_group import run_store, worker_index
from paceline.exchange.wire.worker_wire import WorkerWire
from paceline.scheme.counts import Counts

if TYPE_CHECKING:
    from paceline.clock.wall.wall_strategy import AbstractWallStrategy

_POLL_SECONDS = 0.001  # of workers that have stopped, for those that have not
_NO_MORE, _KEPT = "cuts: no more", "cuts: states of servers"


class Cuts:
    """Cuts of a run, from the view of one worker.

    Worker 0 asks for a cut. Servers that grant steps then stop each worker. Without them, workers
    that wait for each other's steps stop after the same step, and others when they learn of the
    cut. Servers save their state when all workers have stopped. After a worker has ended or was
    lost, there is no further cut. `look_seconds`: time between two checks for a due checkpoint.
    `timeout_seconds`: longest wait for others.
    """

    def __init__(
        self,
        counts: Counts,
        strategy: "AbstractWallStrategy",
        *,
        look_seconds: float,
        timeout_seconds: float,
    ) -> None:
        self._strategy, self._granted = strategy, not counts.scheme.own_weights
        self._store, self._timeout_seconds = run_store(), timeout_seconds
        self._look_seconds = look_seconds
        self._workers, self._servers = counts.num_workers, counts.scheme.servers
        self._together = counts.can_meet and self._workers > 1
        self._number, self._asked = 0, False
        self._next: int | None = None  # step after which all look together
        self._stride, self._looked_at = 1, time.perf_counter()

    def comes(self, is_due: Callable[[], bool]) -> bool:
        """Return True if this worker stops after the step that has ended. `is_due()`: whether a
        checkpoint is due; only worker 0's counts.
        """
        now, steps = time.perf_counter(), self._strategy.num_steps
        if self._granted:
            if worker_index() == 0 and not self._asked and self._looks(now) and self._asks(is_due):
                self._wire.ask_to_stop()
                self._asked = True
            return self._wire.stops
        if not self._together:
            return self._looks(now) and self._decide(is_due)
        if self._next is not None and steps < self._next:
            return False
        key = f"cuts: after {steps}"
        if worker_index() == 0:
            self._adapt(now)
            self._store.set(key, f"{int(self._decide(is_due))} {steps + self._stride}")
        if not self._until(lambda: self._store.check([key])):
            return False
        comes, following = self._store.get(key).split()
        self._next = int(following)
        return bool(int(comes))

    def stop(self) -> bool:
        """Wait until all workers have stopped, and servers have saved their state. Return False if
        a worker has ended instead, so that there is no cut. Raises TimeoutError.
        """
        self._number, self._asked = self._number + 1, False
        number = self._number
        if not self._meet(f"cuts: stopped at {number}"):
            return False
        if self._servers:
            if worker_index() == 0:
                self._wire.keep()
            return self._until(lambda: self._store.add(_KEPT, 0) == number * self._servers)
        return True

    def go_on(self) -> None:
        """Wait until all workers have written, since the next step changes what others hold."""
        self._meet(f"cuts: written at {self._number}")

    @property
    def _wire(self) -> WorkerWire:
        assert self._strategy.push is not None
        return self._strategy.push.wire

    def _meet(self, where: str) -> bool:
        """Wait for all workers; return False if one has ended instead."""
        self._store.add(where, 1)
        return self._until(lambda: self._store.add(where, 0) == self._workers)

    def _decide(self, is_due: Callable[[], bool]) -> bool:
        """Decide as worker 0, or learn its decision."""
        key = f"cuts: {self._number + 1}"
        if worker_index() > 0:
            return self._store.check([key])
        if not self._asks(is_due):
            return False
        self._store.set(key, "")
        return True

    def _asks(self, is_due: Callable[[], bool]) -> bool:
        return not self._store.check([_NO_MORE]) and is_due()

    def _looks(self, now: float) -> bool:
        """Return True if it is time for a check."""
        if now - self._looked_at < self._look_seconds:
            return False
        self._looked_at = now
        return True

    def _adapt(self, now: float) -> None:
        """Choose the number of steps until the next check from the time that the last ones took."""
        elapsed, self._looked_at = now - self._looked_at, now
        steps = math.ceil(self._stride * self._look_seconds / max(elapsed, 1e-9))
        self._stride = max(1, min(steps, 2 * self._stride))

    def _until(self, all_have: Callable[[], bool]) -> bool:
        deadline = time.monotonic() + self._timeout_seconds
        while not all_have():
            if self._store.check([_NO_MORE]):
                return False
            if time.monotonic() > deadline:
                raise TimeoutError(f"a checkpoint is not there after {self._timeout_seconds} s")
            time.sleep(_POLL_SECONDS)
        return True


def end_cuts() -> None:
    """Prevent further checkpoints: a worker has taken its last step, or was lost."""
    run_store().set(_NO_MORE, "")


def tell_kept() -> None:
    """Tell the workers, which have stopped, that this server has saved its state."""
    run_store().add(_KEPT, 1)
