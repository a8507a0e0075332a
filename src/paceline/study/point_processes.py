"""Processes that run the points of a multirun side by side, one point after the other each.

A process that dies costs the point that it ran, and no other. Hydra loads its plugins anew, so that
what is pickled cannot stand in the launcher's file.
"""

import multiprocessing
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import connection
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from omegaconf import DictConfig

from paceline.cluster.child import die_with_parent
from paceline.cluster.supervisor import death

Task = Callable[[DictConfig], Any]  # which can be pickled
_END_SECONDS = 4.0  # for a process to end its point, discard its record and close its run in MLflow


class Killed(NamedTuple):
    """Stand-in for what a point returned: its process has died. `how`: in words."""

    how: str


class _Left(NamedTuple):
    """Stand-in for what a point returned: it left by SystemExit with this code."""

    code: Any


class _Worker:
    """A process that runs one point after the other. `busy`: the index of the present one."""

    def __init__(self, task: Task) -> None:
        context = multiprocessing.get_context("spawn")
        self.ends, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(task, theirs))
        self.process.start()
        theirs.close()
        self.busy = -1

    def begin(self, index: int, job: DictConfig) -> None:
        self.busy = index
        with suppress(BrokenPipeError):  # it has died, as `end` tells
            self.ends.send(job)

    def end(self) -> Any:
        """Return what the present point has returned, or Killed."""
        try:
            return self.ends.recv()
        except (EOFError, OSError):
            self.process.join()
            return Killed(death(self.process.exitcode))


def run_points(task: Task, jobs: Sequence[DictConfig], processes: int) -> list[Any]:
    """Run `task` for each of `jobs`, composed configurations, in one of so many processes.

    Returns what each returned, or Killed. Raises SystemExit as the first one that raises it.
    """
    left, ended = deque(enumerate(jobs)), [None] * len(jobs)
    idle: list[_Worker] = []
    busy: dict[Connection, _Worker] = {}
    try:
        while left or busy:
            while left and len(busy) < processes:
                worker = idle.pop() if idle else _Worker(task)
                busy[worker.ends] = worker
                worker.begin(*left.popleft())
            for ready in connection.wait(list(busy)):
                worker = busy.pop(ready)  # type: ignore[reportArgumentType]
                end = ended[worker.busy] = worker.end()
                if not isinstance(end, Killed):
                    idle.append(worker)
                if isinstance(end, _Left):
                    sys.exit(end.code)
        return ended
    finally:
        _end([*idle, *busy.values()])


def _end(workers: Sequence[_Worker]) -> None:
    until = time.monotonic() + _END_SECONDS
    for worker in workers:
        worker.ends.close()
        worker.process.terminate()
    for worker in workers:
        worker.process.join(max(0.0, until - time.monotonic()))
        worker.process.kill()
        worker.process.join()


def _serve(task: Task, ends: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the sweep's
    die_with_parent()
    with suppress(EOFError):
        while True:
            job = ends.recv()
            try:
                ends.send(task(job))
            except SystemExit as left:
                ends.send(_Left(left.code))
