"""Runs the points of a multirun in several processes at a time.

If a process dies, only the point that it was running fails. These functions are not in the file of
the launcher, because Hydra imports plugins under another name, so that functions in them cannot be
pickled.
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

Task = Callable[[DictConfig], Any]  # must be picklable
_END_SECONDS = 4.0  # for a process to end its point, discard its record and close its run in MLflow


class Killed(NamedTuple):
    """Returned in place of a point's result if its process died. `how`: how it died, in words."""

    how: str


class _Left(NamedTuple):
    """Sent in place of a point's result if the point raised SystemExit with this exit code."""

    code: Any


class _Worker:
    """A process that runs points one after the other. `busy`: index of the current point."""

    def __init__(self, task: Task) -> None:
        context = multiprocessing.get_context("spawn")
        self.ends, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(task, theirs))
        self.process.start()
        theirs.close()
        self.busy = -1

    def begin(self, index: int, job: DictConfig) -> None:
        self.busy = index
        with suppress(BrokenPipeError):  # the process has died; `end` reports it
            self.ends.send(job)

    def end(self) -> Any:
        """Return the result of the current point, or Killed."""
        try:
            return self.ends.recv()
        except (EOFError, OSError):
            self.process.join()
            return Killed(death(self.process.exitcode))


def run_points(task: Task, jobs: Sequence[DictConfig], processes: int) -> list[Any]:
    """Run `task` for each of `jobs` (composed configurations) in `processes` processes.

    Returns the results in the order of `jobs`, with Killed in place of a result if the process
    died. Raises SystemExit as soon as a task raises it.
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
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the sweep handles Ctrl-C
    die_with_parent()
    with suppress(EOFError):
        while True:
            job = ends.recv()
            try:
                ends.send(task(job))
            except SystemExit as left:
                ends.send(_Left(left.code))
