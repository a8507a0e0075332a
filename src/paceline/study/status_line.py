"""Line on standard error that says how far a command is, while it works.

Standard output is left to results.
"""

import math
import os
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import NamedTuple, TextIO

from paceline.record.point_config import PointConfig
from paceline.record.record import Result

_PERIOD = 1.0  # seconds between looks
_PLAIN_PERIOD = 30.0  # seconds between lines, where there is no terminal
PREFIX = "progress: "  # of such lines


class Status(NamedTuple):
    """State of the work. `share`: of all of it, done; None before it has begun."""

    name: str
    share: float | None
    note: str

    @property
    def text(self) -> str:
        return f"{self.name}: {100 * (self.share or 0):.0f} %, {self.note}"


Show = Callable[[Status], None]


class StatusLine:
    """Context that shows how far the work inside is.

    On a terminal it is a bar that vanishes at the end, else a plain line when the work has begun
    and one every 30 seconds. `status` returns the state, in a thread of its own.
    """

    def __init__(self, status: Callable[[], Status]) -> None:
        self._status = status
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="status", daemon=True)

    def __enter__(self) -> "StatusLine":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _follow(self) -> None:
        if sys.platform == "linux":  # a thread has its own priority there: workers come first
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        with display(sys.stderr) as show:
            while not self._stopped.wait(_PERIOD):
                with suppress(OSError):  # a record was replaced while it was read: the next look
                    show(self._status())


@contextmanager
def display(file: TextIO, now: Callable[[], float] = time.monotonic) -> Generator[Show]:
    """Yield what shows a state on `file`: as a bar if it is a terminal, else as lines."""
    if not file.isatty():
        yield _lines(file, now)
        return
    with _bar(file) as show:
        yield show


def _lines(file: TextIO, now: Callable[[], float]) -> Show:
    due = -math.inf

    def show(status: Status) -> None:
        nonlocal due
        if status.share is not None and now() >= due:
            due = now() + _PLAIN_PERIOD
            print(f"{PREFIX}{status.text}", file=file, flush=True)

    return show


@contextmanager
def _bar(file: TextIO) -> Generator[Show]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn
    from rich.table import Column

    one_line = Column(no_wrap=True, overflow="ellipsis")
    bar = Progress(
        TextColumn("{task.description}", table_column=one_line, markup=False),
        BarColumn(bar_width=12),
        TextColumn("{task.percentage:3.0f} %", table_column=Column(no_wrap=True, min_width=5)),
        TextColumn("{task.fields[note]}", table_column=one_line, markup=False),
        console=Console(file=file),
        auto_refresh=False,
        transient=True,
        redirect_stdout=sys.stdout.isatty(),  # results that are piped stay in the pipe
    )
    with bar:
        task = bar.add_task("", total=None, note="", visible=False)

        def show(status: Status) -> None:
            bar.update(
                task,
                description=status.name,
                total=None if status.share is None else 1.0,
                completed=status.share or 0.0,
                note=status.note,
                visible=True,
                refresh=True,
            )
            file.write("\r")  # so that what a point prints stands in place of the bar
            file.flush()

        yield show


def result_line(number: int | None, config: PointConfig, result: Result, note: str) -> str:
    """Return the line on a point that has ended.

    `number`: position in a multirun, from 1; None outside one.
    """
    values = config.values
    settings = (
        f"{config.names['scheme']} workers={values['workers']} "
        f"batch_size={values['batch_size']} lr={config.lr} seed={config.seed}"
    )
    outcome = result["status"]
    if result["reason"]:  # also of a finished run: a worker was lost
        outcome += f" ({result['reason']})"
    if result["images_per_second"]:
        outcome += f", {result['images_per_second']:,.0f} images/s {result['kind']}"
    if result["top1"] is not None:
        outcome += f", top-1 {100 * result['top1']:.2f} %"
    start = f"point {number}: " if number else ""
    return f"{start}{settings}: {outcome}, {note}"
