"""Start and end of a run's processes on this machine, by a forkserver.

The forkserver has already imported torch, Lightning and torchmetrics, so that each point of a sweep
starts in a fraction of a second. If it is killed, running processes are not affected, and the next
ones get a new forkserver; while it is stopped, no other start.
"""

import errno
import multiprocessing
import os
import pickle
import resource
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing import connection, forkserver, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from paceline.cluster.child import Ended, Place, Raised, Report, Returned, enter
from paceline.cluster.supervisor import AbstractProcesses, ProcessFailure, Task
from paceline.errors import SettingError, first_line

_PRELOADED = [
    "hydra.utils",
    "torchmetrics.classification",
    "paceline.clock.wall.ddp",  # torch, Lightning
    "paceline.clock.virtual.virtual_strategy",
]
# glibc's malloc returns freed memory to the kernel, and every step then asks for it anew, page by
# page: a quarter of ResNet-18's step on a CPU. The environment sets it for new processes
# (mallopt(3)), not for the caller's own; 32 MiB is the greatest value of the second.
KEEP_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(4 * 2**30), "MALLOC_MMAP_THRESHOLD_": str(32 * 2**20)}
_MOST_FILES = 65536
_FILES, _FILES_EACH = 32, 6  # open files of a launcher: its own, and for each process
_CODE_SECONDS = 1.0  # for the forkserver to report the exit code of a process that has ended
_END_SECONDS = 5  # for the kernel to end killed processes


class _Child:
    """A started process, the pipe of its `reports`, and the `sentinel` that its end makes ready."""

    def __init__(self, process: BaseProcess, reports: Connection) -> None:
        self._process, self.reports = process, reports
        assert process.pid is not None
        self._descriptor: int | None = None
        self.sentinel: Any = process.sentinel
        with suppress(ProcessLookupError):  # it has ended already
            self.sentinel = self._descriptor = os.pidfd_open(process.pid)

    @property
    def exitcode(self) -> int | None:
        """Exit code, negative for a signal, of a process that has ended; None if unknown."""
        self._process.join(_CODE_SECONDS)
        code = self._process.exitcode
        return None if code == 255 else code  # as multiprocessing tells of a lost forkserver

    def wait(self, seconds: float) -> bool:
        """Wait for its end, at most `seconds`; return True if it has ended."""
        return bool(connection.wait([self.sentinel], seconds))

    def received(self) -> Iterator[Report]:
        """Yield the reports that have arrived."""
        try:
            while self.reports.poll():
                yield self.reports.recv()
        except (EOFError, OSError, pickle.UnpicklingError):  # at its end, or killed in a report
            pass

    def kill(self) -> None:
        if self._descriptor is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)

    def close(self) -> None:
        """Release a process that has ended."""
        self.reports.close()
        self._process.join(_CODE_SECONDS)
        if self._process.exitcode is not None:
            self._process.close()
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class LocalProcesses(AbstractProcesses):
    """Processes of a run that `start` begins on this machine."""

    def __init__(self) -> None:
        self._children: dict[int, _Child] = {}
        self._running = set[int]()

    def start(self, task: Task, rank: int, place: Place) -> None:
        """Start a process of the run. Raises ProcessFailure if that is not possible."""
        name = task.name_of(rank)
        try:
            context = multiprocessing.get_context("forkserver")
            reports, reporting = context.Pipe(duplex=False)
            arguments = (task.target, task.arguments, place, reporting)
            process = context.Process(target=enter, args=arguments, name=name)
            process.start()
        except (EOFError, OSError) as error:
            reason = getattr(error, "strerror", None) or "the forkserver has ended"
            message = f"{name}: it cannot be started: {reason}"
            raise ProcessFailure(message, environment=True) from error
        reporting.close()  # so that the end of the process is the end of its reports
        self._children[rank] = _Child(process, reports)
        self._running.add(rank)

    def listen(self, seconds: float) -> list[tuple[int, Report]]:
        running = [(rank, self._children[rank]) for rank in sorted(self._running)]
        connection.wait([each for _, it in running for each in (it.reports, it.sentinel)], seconds)
        heard: list[tuple[int, Report]] = []
        for rank, child in running:
            ended = child.wait(0)  # before what it has reported is read
            reports = [*child.received()]
            has_result = any(isinstance(each, Returned | Raised) for each in reports)
            if ended and not has_result:
                reports.append(Ended(child.exitcode))
            if ended or has_result:
                self._running.remove(rank)
            heard += [(rank, each) for each in reports]
        return heard

    def kill(self, rank: int) -> None:
        self._children[rank].kill()

    def wait(self, seconds: float) -> None:
        """Wait for the end of each process, at most `seconds` for one."""
        for child in self._children.values():
            child.wait(seconds)

    def end(self) -> None:
        """Kill the processes that live, and release all."""
        for child in self._children.values():
            child.kill()
        until = time.monotonic() + _END_SECONDS
        for child in self._children.values():
            child.wait(max(0.0, until - time.monotonic()))
            child.close()


def preload() -> None:
    """Start the forkserver, which imports in the background while the caller continues. Raises
    SettingError("TMPDIR") if its socket cannot be there, and
    SettingError("TORCH_DISTRIBUTED_DEBUG") for a level with which every run fails.
    """
    if os.environ.get("TORCH_DISTRIBUTED_DEBUG", "").upper() == "DETAIL":
        message = "DETAIL needs equal calls in all processes; INFO or less is needed"
        raise SettingError("TORCH_DISTRIBUTED_DEBUG", message)
    os.environ["OMP_NUM_THREADS"] = "1"  # before torch's first thread pool, in every process
    for name, value in KEEP_MEMORY.items():
        os.environ.setdefault(name, value)
    _allow_files()
    multiprocessing.set_forkserver_preload(_PRELOADED)
    resource_tracker.ensure_running()  # which would let signals through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        forkserver.ensure_running()  # in which Ctrl-C, which is the launcher's, stays blocked
    except OSError as error:
        if error.errno not in (None, errno.ENOENT):  # what the machine refuses now
            raise
        reason = f"the forkserver's socket cannot be there: {first_line(error)}"
        raise SettingError("TMPDIR", reason) from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _allow_files() -> None:
    """Raise the limit of open files, which the forkserver's children inherit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < _MOST_FILES:
        most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def require_files(processes: int) -> None:
    """Raise ProcessFailure if the limit of open files is too low for a run of `processes`."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = _FILES + _FILES_EACH * processes
    if 0 <= limit < needed:
        message = f"{processes} processes need {needed} open files, and {limit} are allowed"
        raise ProcessFailure(f"{message} (ulimit -n)", environment=True)


def wait_for_preload() -> None:
    """Wait until the forkserver has finished its imports."""
    process = multiprocessing.get_context("forkserver").Process(target=int)
    process.start()
    process.join()
    process.close()
