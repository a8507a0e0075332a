"""Supervision of a run's processes: return values, the first failure, and tolerated losses."""

import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from paceline.cluster.child import Alive, Ended, Report, Returned, Tolerated
from paceline.errors import SettingError
from paceline.exchange.liveness import PERIOD

_KILLED = "killed by"
_LEAST = 5 * PERIOD  # of silence; a busy machine may hold up a sign
_GRACE = 1.0  # seconds; the error of a peer often arrives before the end that caused it


class ProcessFailure(Exception):
    """Failure of a process of the run; the message names it and the cause on one line.
    `environment`: True if the machine or the network caused it; another attempt may succeed.
    """

    def __init__(self, message: str, *, environment: bool = False) -> None:
        super().__init__(message)
        self.environment = environment


class LostWorker(NamedTuple):
    """Stands for the return value of a worker that died while its servers continued."""

    worker: int
    reason: str


class AbstractProcesses(ABC):
    """The started processes of a run, on this machine or on several."""

    @abstractmethod
    def listen(self, seconds: float) -> list[tuple[int, Report]]:
        """Wait for reports, at most so long; return them with the rank of each process. The last
        report of a process that has ended without a result is Ended.
        """

    @abstractmethod
    def kill(self, rank: int) -> None:
        """Kill a process."""


@dataclass(frozen=True)
class Task:
    """Work of a run's processes, each of which calls `target`, written module:function, with
    `arguments`.

    The first `num_training` processes train, `shards` consecutive ones for each worker; the others
    serve. `log_folder`: folder of their output, one file for each process. `timeout_seconds`:
    silence after which a process is killed. `progress`: table that the first worker extends while
    it trains; None if nothing is trained. `code`: digest of the source, the same on all machines.
    """

    target: str
    arguments: tuple[Any, ...]
    num_training: int
    num_servers: int
    log_folder: Path
    shards: int = 1
    timeout_seconds: float = 600
    progress: Path | None = None
    code: str = ""

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


class Supervisor:
    """Watches the `processes` of `task` until all have ended. A worker that consists of several
    processes must not be lost. A process that is silent for longer than the task's
    `timeout_seconds`, or computes for longer without waiting for others, is killed. Time in which
    the supervisor itself was stopped does not count. `clock`: seconds.
    """

    def __init__(
        self,
        processes: AbstractProcesses,
        task: Task,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._processes, self._task, self._clock = processes, task, clock
        self._running = set(range(task.num_processes))
        self._limit, self._looked = max(task.timeout_seconds, _LEAST), clock()
        self._silent = dict.fromkeys(self._running, 0.0)  # seconds, by rank
        self._working = dict.fromkeys(self._running, 0.0)
        self._returned: dict[int, Any] = {}
        self._tolerated: dict[int, Collection[int]] = {}  # by server
        self._lost: list[_Failure] = []
        self._failures: list[_Failure] = []

    def until_the_end(self) -> list[Any]:
        """Wait for all processes; return their return values by rank. A LostWorker stands for each
        worker that was lost. Raises ProcessFailure or SettingError for the first failure.
        """
        deadline = None
        while self._running:
            if deadline is None and (self._failures or self._deserted):
                deadline = self._clock() + _GRACE
            if any(not failure.derived for failure in self._failures):
                break
            if deadline is not None and self._clock() >= deadline:
                break
            self._round(None if deadline is None else deadline - self._clock())
        if self._failures or self._deserted:  # the first that no other process's end caused
            causes = [failure for failure in self._failures if not failure.derived]
            first = min(causes or [*self._lost, *self._failures])
            if first.setting is not None:
                raise SettingError(first.setting, first.reason)
            message = f"{self._task.name_of(first.rank)}: {first.reason}"
            raise ProcessFailure(message, environment=first.environment)
        lost = {each.rank: LostWorker(each.rank, each.reason) for each in self._lost}
        return [(self._returned | lost)[rank] for rank in range(self._task.num_processes)]

    def note(self, rank: int, report: Report) -> None:
        if isinstance(report, Alive):
            self._silent[rank], self._working[rank] = 0.0, report.seconds_of_work
            return
        if isinstance(report, Tolerated):
            self._tolerated[rank] = report.workers
            return
        self._running.discard(rank)
        if isinstance(report, Returned):
            self._returned[rank] = report.value
        elif isinstance(report, Ended):
            died = death(report.exit_code)
            gone = died.startswith(_KILLED)
            self._fail(_Failure(False, self._clock(), rank, died, None, gone=gone))
        else:
            _, setting, lost_peer, when, environment = report
            self._fail(_Failure(lost_peer, when, rank, report.reason, setting, environment))

    @property
    def _deserted(self) -> bool:
        return len(self._lost) == self._task.num_training

    def _round(self, seconds: float | None) -> None:
        """Record reports, those of tolerance first and ends last; then kill what is hung."""
        wait = PERIOD if seconds is None else max(0.0, min(seconds, PERIOD))
        reports = self._processes.listen(wait)
        turns: dict[type[Report], int] = {Tolerated: 0, Ended: 2}
        for rank, report in sorted(reports, key=lambda each: turns.get(type(each[1]), 1)):
            if rank in self._running:
                self.note(rank, report)
        now = self._clock()
        passed, self._looked = min(now - self._looked, 2 * PERIOD), now
        for rank in sorted(self._running):
            self._silent[rank] += passed
            if self._silent[rank] > self._limit:
                how = ": stopped, or hung"
            elif self._working[rank] > self._limit:
                how = " in a step of its own"
            else:
                continue
            self._running.remove(rank)
            self._processes.kill(rank)
            reason = f"silent for {self._limit:g} s{how}"
            self._fail(_Failure(False, now, rank, reason, None, gone=True))

    def _fail(self, failure: _Failure) -> None:
        """Record a failure. It is only a loss if servers continue without the worker, and the
        worker was killed or failed because another process ended.
        """
        servers = range(self._task.num_training, self._task.num_processes)
        tolerated = (
            (failure.derived or failure.gone)
            and self._task.shards == 1
            and failure.rank < self._task.num_training
            and len(servers) > 0
            and all(failure.rank in self._tolerated.get(server, ()) for server in servers)
        )
        (self._lost if tolerated else self._failures).append(failure)


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
