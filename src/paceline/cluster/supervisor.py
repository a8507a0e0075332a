"""Watches the processes of a point: what they return, which fails first, which loss is no end."""

import signal
import time
from collections.abc import Iterable
from multiprocessing import connection
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

from paceline.cluster.child import Raised, Report, Returned, Tolerated
from paceline.errors import SettingError

_GRACE = 1.0  # seconds; who saw the end of another is often heard before that end itself


class ProcessFailure(Exception):
    """A process of the point failed; the message says which, and why, on one line."""


class LostWorker(NamedTuple):
    """A worker that died while its servers went on, in place of what it would have returned."""

    worker: int
    reason: str


class Launched(NamedTuple):
    """`name`: as it is told, "worker 1"."""

    name: str
    process: BaseProcess
    reports: Connection


class _Failure(NamedTuple):
    derived: bool  # from the end of another process
    when: float
    rank: int
    reason: str
    setting: str | None


class Watch:
    """`launched`: by rank, workers first."""

    def __init__(self, launched: list[Launched], workers: int) -> None:
        self._launched, self._workers = launched, workers
        self._running = set(range(len(launched)))
        self._returned: dict[int, Any] = {}
        self._tolerated: dict[int, frozenset[int]] = {}  # by server
        self._lost: list[_Failure] = []
        self._failures: list[_Failure] = []

    def until_the_end(self) -> list[Any]:
        """What each returned, by rank; of a worker that was lost, LostWorker.

        Raises ProcessFailure or SettingError for the first that failed.
        """
        deadline = None
        while self._running and (deadline is None or time.monotonic() < deadline):
            self._round(None if deadline is None else deadline - time.monotonic())
            if any(not failure.derived for failure in self._failures):
                break
            if deadline is None and (self._failures or self._deserted):
                deadline = time.monotonic() + _GRACE
        if self._failures or self._deserted:
            raise self._explain()
        lost = {each.rank: LostWorker(each.rank, each.reason) for each in self._lost}
        return [(self._returned | lost)[rank] for rank in range(len(self._launched))]

    @property
    def _deserted(self) -> bool:
        return len(self._lost) == self._workers

    def _round(self, seconds: float | None) -> None:
        """Wait until something happens, and take note of it: whose loss is tolerated first."""
        waited = [self._launched[rank] for rank in self._running]
        handles = [handle for each in waited for handle in (each.reports, each.process.sentinel)]
        connection.wait(handles, None if seconds is None else max(0.0, seconds))
        ended = {rank for rank in self._running if not self._launched[rank].process.is_alive()}
        heard = [(rank, report) for rank in sorted(self._running) for report in self._hear(rank)]
        for rank, report in sorted(heard, key=lambda each: not isinstance(each[1], Tolerated)):
            self._note(rank, report)
        for rank in ended & self._running:
            self._running.remove(rank)
            died = _died(self._launched[rank].process.exitcode)
            self._fail(_Failure(False, time.monotonic(), rank, died, None))

    def _hear(self, rank: int) -> Iterable[Report]:
        reports = self._launched[rank].reports
        try:
            while reports.poll():
                yield reports.recv()
        except (EOFError, OSError):  # at its end, or killed while it reported
            pass

    def _note(self, rank: int, report: Report) -> None:
        if isinstance(report, Tolerated):
            self._tolerated[rank] = report.workers
            return
        self._running.discard(rank)
        if isinstance(report, Returned):
            self._returned[rank] = report.value
        elif isinstance(report, Raised):
            self._fail(_Failure(report.lost_peer, report.when, rank, report.reason, report.setting))

    def _fail(self, failure: _Failure) -> None:
        """A worker that was killed, or lost its server: a loss, if servers go on without it."""
        loss = failure.derived or failure.reason.startswith("killed by")
        tolerated = loss and failure.rank < self._workers and self._servers_survive(failure.rank)
        (self._lost if tolerated else self._failures).append(failure)

    def _servers_survive(self, worker: int) -> bool:
        servers = range(self._workers, len(self._launched))
        return len(servers) > 0 and all(
            worker in self._tolerated.get(server, frozenset()) for server in servers
        )

    def _explain(self) -> Exception:
        """The first failure; who only saw another's end counts where no such end is known."""
        causes = [failure for failure in self._failures if not failure.derived]
        first = min(causes or [*self._lost, *self._failures])
        if first.setting is not None:
            return SettingError(first.setting, first.reason)
        return ProcessFailure(f"{self._launched[first.rank].name}: {first.reason}")


def _died(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        return f"killed by {signal.Signals(-exit_code).name}"
    return f"ended with exit code {exit_code} and no result"
