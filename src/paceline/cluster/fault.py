"""Faults of one node at half time: what they are, and when they strike."""

import contextlib
import csv
import json
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Annotated, Literal

from paceline.errors import SettingError
from paceline.settings import Neutral

Fault = Annotated[
    Literal["none", "worker_killed", "server_killed", "slow_worker", "slow_link"], Neutral("none")
]
SLOWER_STEPS, SLOWER_LINK = 5, 10  # times
RECORD = "fault.json"  # in the folder of a record
_HALF, _PERIOD = 0.5, 0.05  # share of the run's images, seconds


@contextlib.contextmanager
def at_half_time(progress: Path, strike: Callable[[], None]) -> Generator[None]:
    """Call `strike` once when half of the run's images have been trained, by a thread.

    `progress`: table that a worker extends about once a second by the images of all workers, and
    their share of the run. RECORD, beside it, tells when it was. Raises SettingError if the run has
    ended before.
    """
    over = Event()
    with ThreadPoolExecutor(1, "fault") as executor:
        struck = executor.submit(_strike_at_half_time, progress, strike, over)
        try:
            yield
        finally:
            over.set()
        if not struck.result():
            raise SettingError("cluster.fault", "the run was over before anybody saw half of it")


def has_struck(progress: Path) -> bool:
    """Return True if the fault was before the run was resumed."""
    return (progress.parent / RECORD).exists()


def _strike_at_half_time(progress: Path, strike: Callable[[], None], over: Event) -> bool:
    while not over.wait(_PERIOD):
        samples, share = _latest(progress)
        if share >= _HALF:
            struck = {"samples": samples, "at": time.time()}
            strike()
            (progress.parent / RECORD).write_text(json.dumps(struck) + "\n")
            return True
    return False


def _latest(progress: Path) -> tuple[int, float]:
    """Return the images so far, and their share of the run's."""
    lines = progress.read_text().splitlines(keepends=True) if progress.is_file() else []
    rows = list(csv.DictReader(line for line in lines if line.endswith("\n")))
    return (int(rows[-1]["samples"]), float(rows[-1]["share"])) if rows else (0, 0.0)
