"""Progress of a run that goes on, as its worker writes it into the partial record."""

import csv
import os
from pathlib import Path
from typing import NamedTuple

_TAIL = 512  # bytes, of which the last whole row is a part


class Progress(NamedTuple):
    """State of a run. `share`: of its samples, done; `time`: when that was [seconds since 1970].

    `images_per_second` is None where the training clock has not moved since the state before.
    """

    share: float
    train_loss: float
    images_per_second: float | None
    time: float


def read_progress(folder: Path) -> Progress | None:
    """Return the last state in the partial record `folder`; None if there is none yet."""
    path = folder / "progress.csv"
    try:
        with path.open("rb") as file:
            header = file.readline()
            file.seek(max(len(header), path.stat().st_size - _TAIL))
            lines = file.read().split(b"\n")[:-1]  # a worker may be in the middle of a line
            time = os.fstat(file.fileno()).st_mtime
    except FileNotFoundError:
        return None
    if not lines:
        return None
    (row,) = csv.DictReader([header.decode(), lines[-1].decode()])
    rate = row["images_per_second"]
    loss = float(row["train_loss"])
    return Progress(float(row["share"]), loss, float(rate) if rate else None, time)
