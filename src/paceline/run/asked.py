"""Signals that ask for a checkpoint: of a scheduler that is about to end the run, or of its user.

They are the launcher's, which passes them on by a file in the partial record: every process looks
there, on whatever node it is.
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
_PATIENCE = 20.0  # s with a checkpoint before the end; Slurm kills after 30


@contextmanager
def asked_by_signals(point: Point, record: Path) -> Generator[None]:
    """Ask for a checkpoint at SIGUSR1, SIGUSR2 and SIGTERM; after SIGTERM end when it is there.

    A signal that already has a handler is then its: that of a queue, which queues the job again.
    Does nothing for a point without checkpoints, and outside of the main thread.
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
    """Return when a checkpoint was last asked for [nanoseconds since 1970]; 0: never."""
    try:
        return (record / CHECKPOINTS / ASKED).stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def leave_signals_to_launcher() -> None:
    """Go on when a scheduler signals all processes of a job instead of only the launcher."""
    for each in _ASKING:
        signal.signal(each, signal.SIG_IGN)
