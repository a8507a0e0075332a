"""Runs the points of a multirun in several processes at a time.

A process needs seconds to import what it runs, so that a sweep uses the same processes for all of
its stages. If a process dies, only the point that it was running fails. These functions are not in
the file of the launcher, because Hydra imports plugins under another name, so that functions in
them cannot be pickled.
"""

import multiprocessing
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import connection
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from omegaconf import DictConfig

from paceline.cluster.child import die_with_parent
from paceline.cluster.supervisor import death

Task = Callable[[DictConfig], Any]  # must be picklable
_END_SECONDS = 4.0  # for a process to end its point and discard its record


class Killed(NamedTuple):
    """Returned in place of a point's result if its process died. `how`: how it died, in words."""

    how: str


class _Left(NamedTuple):
    """Sent in place of a point's result if the point raised SystemExit with this exit code."""

    code: Any


class _Worker:
    """A process that runs points one after the other. `busy`: index of the current point."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.ends, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs,))
        self.process.start()
        theirs.close()
        self.busy = -1

    def begin(self, index: int, task: Task, job: DictConfig) -> None:
        self.busy = index
        with suppress(BrokenPipeError):  # the process has died; `end` reports it
            self.ends.send((task, job))

    def end(self) -> Any:
        """Return the result of the current point, or Killed."""
        try:
            return self.ends.recv()
        except (EOFError, OSError):
            self.process.join()
            return Killed(death(self.process.exitcode))


_kept: list[_Worker] | None = None  # idle processes; None: they end with each call of run_points


@contextmanager
def processes_kept() -> Generator[None]:
    """Let all calls of `run_points` inside use the same processes, which end with the context."""
    global _kept
    _kept = []
    try:
        yield
    finally:
        left, _kept = _kept, None
        _end(left)


def run_points(task: Task, jobs: Sequence[DictConfig], processes: int) -> list[Any]:
    """Run `task` for each of `jobs` (composed configurations) in `processes` processes.

    Returns the results in the order of `jobs`, with Killed in place of a result if the process
    died. Raises SystemExit as soon as a task raises it.
    """
    left, ended = deque(enumerate(jobs)), [None] * len(jobs)
    idle: list[_Worker] = [] if _kept is None else _kept
    busy: dict[Connection, _Worker] = {}
    try:
        while left or busy:
            while left and len(busy) < processes:
                worker = idle.pop() if idle else _Worker()
                busy[worker.ends] = worker
                index, job = left.popleft()
                worker.begin(index, task, job)
            for ready in connection.wait(list(busy)):
                worker = busy.pop(ready)  # type: ignore[reportArgumentType]
                end = ended[worker.busy] = worker.end()
                if not isinstance(end, Killed):
                    idle.append(worker)
                if isinstance(end, _Left):
                    sys.exit(end.code)
        return ended
    finally:
        _end([*busy.values(), *([] if idle is _kept else idle)])


def _end(workers: Sequence[_Worker]) -> None:
    until = time.monotonic() + _END_SECONDS
    for worker in workers:
        worker.ends.close()
        worker.process.terminate()
    for worker in workers:
        worker.process.join(max(0.0, until - time.monotonic()))
        worker.process.kill()
        worker.process.join()


def _serve(ends: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the sweep handles Ctrl-C
    die_with_parent()
    with suppress(EOFError, BrokenPipeError):  # the sweep has ended
        while True:
            task, job = ends.recv()
            try:
                ends.send(task(job))
            except SystemExit as left:
                ends.send(_Left(left.code))
