"""Declares the tables of a record: a class for the columns, beside the function that fills it.

No torch here: analysis reads these tables.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paceline.measurement.observed import Observed


@dataclass(frozen=True)
class CurveRow:
    """A snapshot of the weights. `train_loss`: mean since the snapshot before; None without steps.

    `validation_loss`: None where it is not finite. `real_seconds`: of training, until then.
    """

    samples: int
    updates: int
    seconds: float
    train_loss: float | None
    validation_loss: float | None
    top1: float
    top5: float
    real_seconds: float


@dataclass(frozen=True)
class StalenessRow:
    """How many pushes of this staleness a server has taken."""

    server: int
    staleness: int
    pushes: int


@dataclass(frozen=True)
class PhasesRow:
    """Where a worker's seconds went, and what it exchanged."""

    worker: int
    steps: int
    samples: int
    seconds_data: float
    seconds_compute: float
    seconds_communicate: float
    bytes_sent: int
    bytes_received: int


@dataclass(frozen=True)
class TimelineRow:
    """A span in which a worker computed, communicated or waited [seconds]."""

    worker: int
    phase: str
    start: float
    end: float


TableRow = CurveRow | StalenessRow | PhasesRow | TimelineRow


def curve(observed: Observed) -> list[CurveRow]:
    """Return a row per snapshot, in the order of samples."""
    return [
        CurveRow(
            samples=score.samples,
            updates=score.updates,
            seconds=round(score.seconds, 4),
            train_loss=finite(observed.train_losses.get(score.samples)),
            validation_loss=finite(score.loss),
            top1=score.top1,
            top5=score.top5,
            real_seconds=round(score.real_seconds, 4),
        )
        for score in observed.scores
    ]


def staleness(observed: Observed) -> list[StalenessRow]:
    """Return a histogram of the pushes of each server."""
    rows = []
    for server in observed.servers:
        counts = Counter(staleness for _, staleness in server.pushes)
        rows += [StalenessRow(server.server, value, counts[value]) for value in sorted(counts)]
    return rows


def phases(observed: Observed) -> list[PhasesRow]:
    """Return a row per worker that came to its end."""
    rows = []
    for worker in observed.workers:
        seconds = float(worker.step_ends[-1]) if len(worker.step_ends) else 0.0
        busy = seconds - worker.seconds_data - worker.seconds_communicating
        row = PhasesRow(
            worker=worker.worker,
            steps=worker.steps,
            samples=worker.steps * observed.batch_size,
            seconds_data=round(worker.seconds_data, 4),
            seconds_compute=round(max(0.0, busy), 4),
            seconds_communicate=round(worker.seconds_communicating, 4),
            bytes_sent=worker.bytes_sent,
            bytes_received=worker.bytes_received,
        )
        rows.append(row)
    return rows


def timeline(observed: Observed) -> list[TimelineRow]:
    """Return the recorded spans, worker by worker."""
    return [TimelineRow(*span) for worker in observed.workers for span in worker.timeline]


def finite(value: float | None) -> float | None:
    """Return `value`, or None in place of infinity and NaN, which JSON does not know."""
    return value if value is not None and math.isfinite(value) else None


@dataclass(frozen=True)
class PointTable:
    """A table of a point. `name`: of its CSV in a record; `collected`: of that of a whole study,
    where a first column `key` names the point.
    """

    name: str
    collected: str
    row: type[TableRow]
    make: Callable[[Observed], Sequence[TableRow]]

    @property
    def columns(self) -> list[str]:
        """Names of the columns in a record."""
        return [field.name for field in fields(self.row)]

    def rows(self, observed: Observed) -> list[dict[str, object]]:
        """Return the rows of a point; each maps all columns."""
        return [asdict(row) for row in self.make(observed)]


POINT_TABLES = (
    PointTable("curve", "curves", CurveRow, curve),
    PointTable("staleness", "staleness", StalenessRow, staleness),
    PointTable("phases", "phases", PhasesRow, phases),
    PointTable("timeline", "timeline", TimelineRow, timeline),
)
