"""State of a run's processes: whether one has ended, and whether a silent one computes or waits."""

import time
from typing import NamedTuple

_began: float | None = None  # monotonic clock [s] when the present work began; None while waiting


class Lost(NamedTuple):
    """Message that a worker has ended. `reason`: what its server observed."""

    reason: str


class LostPeerError(ConnectionError):
    """Error of a connection whose other process has ended; that process or its launcher says
    why.
    """


def work() -> None:
    """Note that this process begins to compute, and waits for no other process."""
    global _began
    _began = time.monotonic()


def rest() -> None:
    """Note that this process may wait for others from now on."""
    global _began
    _began = None


def seconds_of_work() -> float:
    """Return how long this process has computed without waiting; 0 while it may wait."""
    began = _began
    return 0.0 if began is None else time.monotonic() - began
