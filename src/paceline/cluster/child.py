"""Process of a run: it calls its function, reports to its launcher, and ends with the launcher."""

import contextlib
import ctypes
import faulthandler
import importlib
import multiprocessing
import os
import re
import select
import signal
import threading
import time
import traceback
from collections.abc import Iterable
from multiprocessing import connection
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from paceline.errors import SettingError, printable
from paceline.exchange.liveness import PERIOD, LostPeerError, Stillness, seconds_of_work

_CLONE_NEWNET = 0x40000000  # linux/sched.h
_OF_TORCH = re.compile(r"^Dist\w*Error|gloo|NCCL|out of memory", re.IGNORECASE)
_LOST_PEER = ("closed by peer", "reset by peer")  # gloo, when the process at the other end is gone


class Returned(NamedTuple):
    """Report of a function's return value."""

    value: Any


class Raised(NamedTuple):
    """Report of an exception.

    `setting`: name of the setting if it is a SettingError, else None. `lost_peer`: True if the end
    of another process caused it. `when`: seconds of the monotonic clock, which all processes of a
    machine share. `environment`: True if the machine or the network caused it, so that another
    attempt may succeed.
    """

    reason: str
    setting: str | None
    lost_peer: bool
    when: float
    environment: bool = False


class Tolerated(NamedTuple):
    """Report of a server: the workers without which it can continue."""

    workers: tuple[int, ...]


class Alive(NamedTuple):
    """Sign of life. `seconds_of_work`: how long the process has computed without waiting."""

    seconds_of_work: float


class Ended(NamedTuple):
    """Report of the end of a process, by who started it. `exit_code`: None if it is unknown."""

    exit_code: int | None


class Place(NamedTuple):
    """Place of a process. `environment`: variables to set. `log`: file to which standard output and
    error are appended. `namespace`: file of its network namespace; None for the launcher's.
    """

    environment: dict[str, str]
    log: Path
    namespace: str | None


Report = Returned | Raised | Tolerated | Alive | Ended
_reports: Connection | None = None  # to this process's launcher
_reporting = threading.Lock()
_stillness: Stillness | None = None  # of this process


def tolerate(workers: Iterable[int]) -> None:
    """Report the workers without which this server can continue; any other must not die."""
    _report(Tolerated(tuple(workers)))


def enter(target: str, arguments: tuple[Any, ...], place: Place, reports: Connection) -> None:
    """Run a process of the run: call `target`, written module:function, and report the result."""
    global _reports
    _reports = reports
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the launcher's
    with place.log.open("ab") as log:
        for stream in (1, 2):
            os.dup2(log.fileno(), stream)
    faulthandler.enable()
    if place.namespace is not None:  # of this thread, and of those that it starts
        with Path(place.namespace).open("rb") as namespace:  # os.setns needs Python 3.12
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "no network namespace", place.namespace)
    die_with_parent()
    threading.Thread(target=_give_signs_of_life, daemon=True).start()
    os.environ.update(place.environment)
    try:
        _report(Returned(_call(target, arguments)))
    except BaseException as error:
        _report(_raised(error))
        raise


def call_here(target: str, arguments: tuple[Any, ...]) -> Returned | Raised:
    """Call `target`, written module:function, in the launcher's process; return its report."""
    try:
        return Returned(_call(target, arguments))
    except Exception as error:
        traceback.print_exc()
        return _raised(error)


def _call(target: str, arguments: tuple[Any, ...]) -> Any:
    module, function = target.split(":")
    return getattr(importlib.import_module(module), function)(*arguments)


def _report(report: Report) -> None:
    if _reports is not None:
        with _reporting, contextlib.suppress(BrokenPipeError):  # without a launcher it ends soon
            _reports.send(report)


def _raised(error: BaseException) -> Raised:
    lost = isinstance(error, LostPeerError) or any(sign in str(error) for sign in _LOST_PEER)
    for cause in (error, error.__cause__):  # Hydra wraps errors of the constructors it calls
        if isinstance(cause, SettingError):
            return Raised(cause.message, cause.setting, lost, time.monotonic())
    reason = printable(" ".join(f"{type(error).__name__}: {error}".split()))
    of_torch = isinstance(error, RuntimeError) and _OF_TORCH.search(reason) is not None
    environment = lost or of_torch or isinstance(error, OSError | MemoryError)
    return Raised(reason, None, lost, time.monotonic(), environment)


def die_with_parent() -> None:
    """Kill this process when its parent has ended, since a killed parent cannot do it."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        connection.wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def stopped_seconds() -> float:
    """Return how long this process has stood still; 0 in the launcher's own process."""
    return _stillness.seconds if _stillness else 0.0


def _give_signs_of_life() -> None:
    global _stillness
    _stillness = Stillness()
    while _reports is not None:
        _stillness.look()
        with _reporting:
            ready = select.select([], [_reports], [], 0)[1]  # else the launcher reads nothing
            if ready:
                with contextlib.suppress(OSError):
                    _reports.send(Alive(seconds_of_work()))
        time.sleep(PERIOD)
