"""Signals by which a scheduler that is about to end a run, or a user, asks for a checkpoint.

The process that launched the run receives these signals. It then touches a file in the partial
record, whose time the processes on all nodes check regularly.
"""

import signal
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from paceline.record.checkpoint import ASKED, CHECKPOINTS, latest
from paceline.record.point import Point

_ASKING = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM)
_PATIENCE = 20.0  # s to wait for a checkpoint before ending; Slurm kills after 30


@contextmanager
def asked_by_signals(point: Point, record: Path) -> Generator[None]:
    """Ask for a checkpoint when SIGUSR1, SIGUSR2 or SIGTERM arrives, inside of the context.

    If the signal had a handler before, such as that of a queue, this handler is called after the
    checkpoint; else SIGTERM ends the process then. Does nothing for a point without checkpoints, or
    outside of the main thread.
    """
    main = threading.current_thread() is threading.main_thread()
    if point.training.checkpoint_seconds is None or not main:
        yield
        return

    def ask(number: int, frame: FrameType | None) -> None:
        before = latest(record)
        (record / CHECKPOINTS / ASKED).touch()
        earlier = handlers[number]
        if number == signal.SIGTERM or callable(earlier):
            deadline = time.monotonic() + _PATIENCE
            while latest(record) == before and time.monotonic() < deadline:
                time.sleep(0.05)
        if callable(earlier):
            earlier(number, frame)
        elif number == signal.SIGTERM:
            sys.exit(128 + number)

    handlers: dict[int, Any] = {each: signal.getsignal(each) for each in _ASKING}
    for each in _ASKING:
        signal.signal(each, ask)
    try:
        yield
    finally:
        for each, handler in handlers.items():
            signal.signal(each, handler)


def when_asked(record: Path) -> int:
    """Return the time of the last request for a checkpoint [nanoseconds since 1970], or 0."""
    try:
        return (record / CHECKPOINTS / ASKED).stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def leave_signals_to_launcher() -> None:
    """Ignore the signals that ask for a checkpoint.

    Processes other than the launcher do so, because some schedulers signal all processes of a job.
    """
    for each in _ASKING:
        signal.signal(each, signal.SIG_IGN)
