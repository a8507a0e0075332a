"""Moments at which all workers of a run stop between two of their steps, to write a checkpoint.

They agree by the store of the launcher, so that no scheme needs a link for it.
"""

import math
import time
from collections.abc import Callable

from paceline.exchange.process_group import run_store, worker_index
from paceline.scheme.accounting import Accounting

_POLL_SECONDS = 0.001  # of workers that have stopped, for those that have not
_NO_MORE, _KEPT = "cuts: no more", "cuts: states of servers"


class Cuts:
    """Cuts of a run, as one worker takes part in them.

    Workers that wait for each other's steps stop after the same one, which the first of them
    chooses; others stop when they learn that worker 0 has. Servers keep their state
    when all workers have stopped. A run in which a worker has ended, or was lost, has no cut more.
    `look_seconds`: from one look at whether a checkpoint is due to the next. `timeout_seconds`: for
    which others are waited for.
    """

    def __init__(
        self, accounting: Accounting, *, look_seconds: float, timeout_seconds: float
    ) -> None:
        self._store, self._timeout_seconds = run_store(), timeout_seconds
        self._look_seconds = look_seconds
        self._workers, self._servers = accounting.num_workers, accounting.scheme.servers
        together = range(self._workers) if accounting.can_meet else None
        group = together or accounting.group_of(worker_index())
        self._first, self._alone = group[0], len(group) == 1
        self._number = 0
        self._next: int | None = None  # step after which the group looks
        self._stride, self._looked_at = 1, time.perf_counter()

    def comes(self, steps: int, is_due: Callable[[], bool]) -> bool:
        """Return True if this worker stops after so many of its steps.

        `is_due()`: whether a checkpoint is to be written; worker 0's counts.
        """
        now = time.perf_counter()
        if self._alone:
            if now - self._looked_at < self._look_seconds:
                return False
            self._looked_at = now
            return self._decide(is_due)
        if self._next is not None and steps < self._next:
            return False
        key = f"cuts: worker {self._first} after {steps}"
        if worker_index() == self._first:
            self._adapt(now)
            self._store.set(key, f"{int(self._decide(is_due))} {steps + self._stride}")
        if not self._until(lambda: self._store.check([key])):
            return False
        comes, following = self._store.get(key).split()
        self._next = int(following)
        return bool(int(comes))

    def stop(self, keep: Callable[[], None] = lambda: None) -> bool:
        """Wait until all workers have stopped, and servers have kept their state; return False if
        a worker has ended instead, and this cut is none.

        `keep()`: called at worker 0, which tells the servers. Raises TimeoutError.
        """
        self._number += 1
        number = self._number
        if not self._meet(f"cuts: stopped at {number}"):
            return False
        if self._servers:
            if worker_index() == 0:
                keep()
            return self._until(lambda: self._store.add(_KEPT, 0) == number * self._servers)
        return True

    def go_on(self) -> None:
        """Wait until all workers have written: who goes on may change what others hold."""
        self._meet(f"cuts: written at {self._number}")

    def _meet(self, where: str) -> bool:
        """Wait for all workers; return False if one has ended instead."""
        self._store.add(where, 1)
        return self._until(lambda: self._store.add(where, 0) == self._workers)

    def _decide(self, is_due: Callable[[], bool]) -> bool:
        """Decide as the first of a group: worker 0 itself, others after it."""
        key = f"cuts: {self._number + 1}"
        if worker_index() > 0:
            return self._store.check([key])
        if self._store.check([_NO_MORE]) or not is_due():
            return False
        self._store.set(key, "")
        return True

    def _adapt(self, now: float) -> None:
        """Look again after about as many steps as the time between two looks has."""
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
    """Let no further checkpoint be written: a worker has taken its last step, or was lost."""
    run_store().set(_NO_MORE, "")


def tell_kept() -> None:
    """Tell the workers, who have stopped, that this server has kept its state."""
    run_store().add(_KEPT, 1)
