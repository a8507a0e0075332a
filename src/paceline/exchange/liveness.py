"""Liveness of the processes of a run: their ends, and whether a silent one works or waits."""

import time
from typing import NamedTuple

_began: float | None = None  # of a step's own work, seconds of the monotonic clock


class Lost(NamedTuple):
    """Message that a worker has ended. `reason`: the observation of its server."""

    reason: str


class LostPeerError(ConnectionError):
    """Error of a connection whose other process has ended.

    That process or its launcher reports the reason.
    """


def work() -> None:
    """Begin a step's own work, in which no other process is waited for."""
    global _began
    _began = time.monotonic()


def rest() -> None:
    """End it: from here on others may be waited for."""
    global _began
    _began = None


def seconds_of_work() -> float:
    """Return for how long the present step's own work goes on; 0 outside one."""
    began = _began
    return 0.0 if began is None else time.monotonic() - began
