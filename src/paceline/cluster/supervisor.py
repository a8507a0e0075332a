"""Supervision of a run's processes: return values, the first failure, and tolerated losses."""

import pickle
import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from paceline.cluster.child import Alive, Report, Returned, Tolerated
from paceline.errors import SettingError
from paceline.exchange.liveness import PERIOD

_KILLED = "killed by"
_LEAST = 5 * PERIOD  # of silence; a busy machine may hold up a sign
_GRACE = 1.0  # seconds; the error of a peer often arrives before the end that caused it


class ProcessFailure(Exception):
    """Failure of a process of the run; the message names it and the cause on one line.
    `environment`: True if the machine or the network caused it, so that another attempt may
    succeed.
    """

    def __init__(self, message: str, *, environment: bool = False) -> None:
        super().__init__(message)
        self.environment = environment


class LostWorker(NamedTuple):
    """Stands for the return value of a worker that died while its servers continued."""

    worker: int
    reason: str


class Process(Protocol):
    """Process on this node or another. `sentinel`: ready when the process has ended."""

    sentinel: Any

    @property
    def exitcode(self) -> int | None: ...
    def is_alive(self) -> bool: ...
    def kill(self) -> None: ...


P = TypeVar("P", bound=Process, covariant=True)


class Child(NamedTuple, Generic[P]):
    """A process of the run, and the pipe that receives its reports."""

    process: P
    reports: Connection


@dataclass(frozen=True)
class Task:
    """Work of a run's processes, each of which calls `target`, written module:function, with
    `arguments`.

    The first `num_training` processes train, `shards` consecutive ones for each worker; the others
    serve. `log_folder`: folder of their output, one file for each process. `code`: digest of the
    source, which must be the same on all nodes. `timeout_seconds`: silence after which a process is
    killed. `progress`: table that the first worker extends while it trains; None if nothing is
    trained.
    """

    target: str
    arguments: tuple[Any, ...]
    num_training: int
    num_servers: int
    log_folder: Path
    shards: int = 1
    code: str = ""
    timeout_seconds: float = 600
    progress: Path | None = None

    @property
    def num_processes(self) -> int:
        return self.num_training + self.num_servers

    def name_of(self, rank: int) -> str:
        """Return the name of a process: "worker 0", "worker 0 shard 0", or "server 0"."""
        if rank >= self.num_training:
            return f"server {rank - self.num_training}"
        worker, shard = divmod(rank, self.shards)
        return f"worker {worker}" if self.shards == 1 else f"worker {worker} shard {shard}"

    def log_of(self, rank: int) -> Path:
        return self.log_folder / f"{self.name_of(rank).replace(' ', '_')}.log"


class _Failure(NamedTuple):
    derived: bool  # caused by the end of another process
    when: float
    rank: int
    reason: str
    setting: str | None
    environment: bool = True
    gone: bool = False  # killed


class Silence:
    """Silence of the processes of a run, by rank. A process that is silent for `seconds` counts as
    hung. Time in which the supervisor itself was stopped does not count.
    """

    def __init__(self, ranks: Iterable[int], seconds: float) -> None:
        self._limit = max(seconds, _LEAST)
        self._unheard = dict.fromkeys(ranks, 0.0)
        self._working = dict.fromkeys(self._unheard, 0.0)
        self._looked = time.monotonic()

    def hear(self, rank: int, seconds_of_work: float) -> None:
        """Record a sign of life of a process, and the seconds that it has computed without waiting
        for others.
        """
        self._unheard[rank], self._working[rank] = 0.0, seconds_of_work

    def pass_time(self) -> None:
        """Count the time since the last call, after all signs of life have been read."""
        now = time.monotonic()
        for rank in self._unheard:
            self._unheard[rank] += min(now - self._looked, 2 * PERIOD)
        self._looked = now

    def of(self, rank: int) -> str | None:
        """Return a description of how long a process has been silent; None if it does not count as
        hung.
        """
        if self._unheard[rank] > self._limit:
            return f"silent for {self._limit:g} s: stopped, or hung"
        if self._working[rank] > self._limit:
            return f"silent for {self._limit:g} s in a step of its own"
        return None


class Supervisor:
    """Watches the processes of `task` in `children`, by rank, until all have ended. A worker that
    consists of several processes must not be lost. A process that is silent for longer than the
    task's `timeout_seconds` is killed.
    """

    def __init__(self, children: Mapping[int, Child[Process]], task: Task) -> None:
        self._children, self._task = children, task
        self._running = set(children)
        self._silence = Silence(children, task.timeout_seconds)
        self._returned: dict[int, Any] = {}
        self._tolerated: dict[int, frozenset[int]] = {}  # by server
        self._lost: list[_Failure] = []
        self._failures: list[_Failure] = []

    def until_the_end(self) -> list[Any]:
        """Wait for all processes; return their return values by rank. A LostWorker stands for each
        worker that was lost. Raises ProcessFailure or SettingError for the first process that
        failed.
        """
        deadline = None
        while self._running:
            if deadline is None and (self._failures or self._deserted):
                deadline = time.monotonic() + _GRACE
            if any(not failure.derived for failure in self._failures):
                break
            if deadline is not None and time.monotonic() >= deadline:
                break
            self._round(None if deadline is None else deadline - time.monotonic())
        if self._failures or self._deserted:
            raise self._explain()
        lost = {each.rank: LostWorker(each.rank, each.reason) for each in self._lost}
        return [(self._returned | lost)[rank] for rank in range(self._task.num_processes)]

    def note(self, rank: int, report: Report) -> None:
        if isinstance(report, Alive):
            self._silence.hear(rank, report.seconds_of_work)
            return
        if isinstance(report, Tolerated):
            self._tolerated[rank] = report.workers
            return
        self._running.discard(rank)
        if isinstance(report, Returned):
            self._returned[rank] = report.value
        else:
            _, setting, lost_peer, when, environment = report
            self._fail(_Failure(lost_peer, when, rank, report.reason, setting, environment))

    @property
    def _deserted(self) -> bool:
        return len(self._lost) == self._task.num_training

    def _round(self, seconds: float | None) -> None:
        """Wait for reports or ends of processes, and record them, reports of tolerance first."""
        children = [self._children[rank] for rank in self._running]
        handles = [handle for each in children for handle in (each.reports, each.process.sentinel)]
        connection.wait(handles, PERIOD if seconds is None else max(0.0, min(seconds, PERIOD)))
        ended = {rank for rank in self._running if not self._children[rank].process.is_alive()}
        reports = [
            (rank, each)
            for rank in sorted(self._running)
            for each in received(self._children[rank].reports)
        ]
        for rank, report in sorted(reports, key=lambda each: not isinstance(each[1], Tolerated)):
            self.note(rank, report)
        for rank in ended & self._running:
            self._running.remove(rank)
            died = death(self._children[rank].process.exitcode)
            gone = died.startswith(_KILLED)
            self._fail(_Failure(False, time.monotonic(), rank, died, None, gone=gone))
        self._end_the_silent()

    def _end_the_silent(self) -> None:
        self._silence.pass_time()
        for rank in sorted(self._running):
            if how := self._silence.of(rank):
                self._running.remove(rank)
                self._children[rank].process.kill()
                self._fail(_Failure(False, time.monotonic(), rank, how, None, gone=True))

    def _fail(self, failure: _Failure) -> None:
        """Record a failure. It is only a loss if servers continue without the worker, and the
        worker was killed or failed because another process ended.
        """
        tolerated = (
            (failure.derived or failure.gone)
            and self._task.shards == 1
            and failure.rank < self._task.num_training
            and self._servers_survive(failure.rank)
        )
        (self._lost if tolerated else self._failures).append(failure)

    def _servers_survive(self, worker: int) -> bool:
        servers = range(self._task.num_training, self._task.num_processes)
        return len(servers) > 0 and all(
            worker in self._tolerated.get(server, frozenset()) for server in servers
        )

    def _explain(self) -> Exception:
        """Return the first failure that was not caused by the end of another process; if there is
        none, the first failure.
        """
        causes = [failure for failure in self._failures if not failure.derived]
        first = min(causes or [*self._lost, *self._failures])
        if first.setting is not None:
            return SettingError(first.setting, first.reason)
        message = f"{self._task.name_of(first.rank)}: {first.reason}"
        return ProcessFailure(message, environment=first.environment)


def received(reports: Connection) -> Iterator[Report]:
    """Yield the reports of a process that have arrived."""
    try:
        while reports.poll():
            yield reports.recv()
    except (EOFError, OSError, pickle.UnpicklingError):  # at its end, or killed while it reported
        pass


def death(exit_code: int | None) -> str:
    """Return in words how a process ended that sent no result."""
    if exit_code is None:
        return "ended without a result"
    if exit_code >= 0:
        return f"ended with exit code {exit_code} and no result"
    try:
        return f"{_KILLED} {signal.Signals(-exit_code).name}"
    except ValueError:  # a real-time signal has no name
        return f"{_KILLED} signal {-exit_code}"
