"""Declares the tables of a record, fills and checks them, and declares study.json.

The room `analysis` imports this file, so it must not import torch.
"""

from __future__ import annotations

import base64
import csv
import math
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypedDict, get_type_hints

import numpy as np
from pydantic import TypeAdapter, ValidationError

from paceline.record.fields import Count, Nats, Seconds, Share, Word

if TYPE_CHECKING:
    from paceline.clock.reports import WorkerReport
    from paceline.record.observed import Observed


@dataclass(frozen=True)
class CurveRow:
    """Row of one snapshot of the weights.

    `samples`, `updates`: numbers of samples and updates until the snapshot. `seconds`: time of the
    snapshot on the training clock. `train_loss`: mean training loss since the previous snapshot;
    None if there was no step since. `validation_loss`: None if it is not finite. `real_seconds`:
    real time of the snapshot. `averaged_top1`: top-1 of the moving average of the weights; None if
    the run has no moving average.
    """

    samples: Count
    updates: Count
    seconds: Seconds
    train_loss: Nats | None
    validation_loss: Nats | None
    top1: Share
    top5: Share
    real_seconds: Seconds
    averaged_top1: Share | None


@dataclass(frozen=True)
class StalenessRow:
    """Number of `pushes` with the same staleness [updates] that a server applied."""

    server: Count
    staleness: Count
    pushes: Count


@dataclass(frozen=True)
class PhasesRow:
    """Seconds that one worker spent in each phase of its steps, and bytes that it exchanged.

    If a worker is split into several processes, they exchange activations and the gradients of
    these activations with each other. `activation_bytes_sent` and `activation_bytes_received` count
    these bytes.
    """

    worker: Count
    steps: Count
    samples: Count
    seconds_data: Seconds
    seconds_compute: Seconds
    seconds_communicate: Seconds
    bytes_sent: Count
    bytes_received: Count
    activation_bytes_sent: Count
    activation_bytes_received: Count


@dataclass(frozen=True)
class TimelineRow:
    """Time span in which a worker computed, communicated or waited [seconds]."""

    worker: Count
    phase: Word
    start: Seconds
    end: Seconds


@dataclass(frozen=True)
class ScoredRow:
    """Score of the last snapshot on the `images` of the test set.

    `right`: one bit for each image, 1 if the first guess is right, as a text that `bits_of` reads.
    """

    images: Count
    right: Word


TableRow = CurveRow | StalenessRow | PhasesRow | TimelineRow | ScoredRow


def curve(observed: Observed) -> list[CurveRow]:
    """Return one row per snapshot, in the order of samples.

    Times never fall: the clocks of two workers that scored them may be some milliseconds apart.
    """
    scores = observed.scores
    seconds = accumulate((score.seconds for score in scores), max)
    real_seconds = accumulate((score.real_seconds for score in scores), max)
    return [
        CurveRow(
            samples=score.samples,
            updates=score.updates,
            seconds=round(at, 4),
            train_loss=finite(observed.train_losses.get(score.samples)),
            validation_loss=finite(score.loss),
            top1=score.top1,
            top5=score.top5,
            real_seconds=round(really_at, 4),
            averaged_top1=score.averaged_top1,
        )
        for score, at, really_at in zip(scores, seconds, real_seconds, strict=True)
    ]


def staleness(observed: Observed) -> list[StalenessRow]:
    """Return a histogram of the pushes that each server applied."""
    rows: list[StalenessRow] = []
    for server in observed.servers:
        counts = Counter(staleness for _, staleness in server.applied)
        rows += [StalenessRow(server.server, value, counts[value]) for value in sorted(counts)]
    return rows


def phases(observed: Observed) -> list[PhasesRow]:
    """Return one row per worker that finished."""
    return [_phases(worker, observed.batch_size) for worker in observed.workers]


def _phases(worker: WorkerReport, batch_size: int) -> PhasesRow:
    seconds = float(worker.step_ends[-1]) if len(worker.step_ends) else 0.0
    busy = seconds - worker.seconds_data - worker.seconds_communicating
    return PhasesRow(
        worker=worker.worker,
        steps=worker.steps,
        samples=worker.steps * batch_size,
        seconds_data=round(worker.seconds_data, 4),
        seconds_compute=round(max(0.0, busy), 4),
        seconds_communicate=round(worker.seconds_communicating, 4),
        bytes_sent=worker.bytes_sent,
        bytes_received=worker.bytes_received,
        activation_bytes_sent=worker.activation_bytes_sent,
        activation_bytes_received=worker.activation_bytes_received,
    )


def timeline(observed: Observed) -> list[TimelineRow]:
    """Return the recorded spans, ordered by worker."""
    return [TimelineRow(*span) for worker in observed.workers for span in worker.timeline]


def scored(observed: Observed) -> list[ScoredRow]:
    """Return one row if the run was scored on the test set, else none."""
    found = observed.test
    return [ScoredRow(found.num_images, text_of(found.right))] if found else []


def finite(value: float | None) -> float | None:
    """Return `value`, or None instead of infinity and NaN, which JSON does not have."""
    return value if value is not None and math.isfinite(value) else None


@dataclass(frozen=True)
class PointTable:
    """Declaration of a table that every point has.

    `name`: name of the CSV file in a record.
    """

    name: str
    row: type[TableRow]
    make: Callable[[Observed], Sequence[TableRow]]

    @property
    def columns(self) -> list[str]:
        return [field.name for field in fields(self.row)]

    @cached_property
    def types(self) -> dict[str, TypeAdapter[list[Any]]]:
        """Return what checks all cells of a column, each of which may be None, by column."""
        hints = get_type_hints(self.row, include_extras=True)
        return {
            name: TypeAdapter(list[hint | None])  # type: ignore[reportInvalidTypeForm]
            for name, hint in hints.items()
        }

    def rows(self, observed: Observed) -> list[dict[str, object]]:
        return [asdict(row) for row in self.make(observed)]

    def fault_of(self, text: str) -> str | None:
        """Return why the content of a record's CSV file is invalid, or None.

        The record of earlier code may lack columns and cells.
        """
        if not text.endswith("\n") or "\0" in text:
            return "it is empty, cut off or no plain text"
        try:
            header, *rows = csv.reader(text.split("\n")[:-1], strict=True)
        except csv.Error as error:
            return str(error)
        if len({*header}) < len(header) or not {*header} <= {*self.columns}:
            return f"columns {', '.join(header)}, not {', '.join(self.columns)}"
        if {*map(len, rows)} - {len(header)}:
            return f"a row does not have {len(header)} cells"
        columns = dict(zip(header, zip(*rows, strict=True), strict=True)) if rows else {}
        for name, cells in columns.items():
            try:
                self.types[name].validate_python([cell or None for cell in cells])
            except ValidationError as error:
                first = error.errors(include_url=False)[0]
                place = f"row {int(first['loc'][0]) + 1}, {name}"
                return f"{place}: {first['msg']}, not {first['input']!r:.40}"
        try:
            if "right" in columns:
                for right, images in zip(columns["right"], columns["images"], strict=True):
                    bits_of(right, int(images or 0))
        except (KeyError, ValueError) as error:
            return f"right: {error}"
        return None


POINT_TABLES = (
    PointTable("curve", CurveRow, curve),
    PointTable("staleness", StalenessRow, staleness),
    PointTable("phases", PhasesRow, phases),
    PointTable("timeline", TimelineRow, timeline),
    PointTable("test", ScoredRow, scored),
)

# columns of tuning.csv, after those of the trial's key and of the study's axes
TUNING = ("seed", "lr", "momentum", "top1", "test_top1", "status", "chance", "chosen", "at_edge")
OWN = "own"  # further column, if a search changes settings of schemes: the setting


class StudyState(TypedDict):
    """Content of study.json: which points of a study have records.

    `axes`: dotted names of the settings that differ between points. `missing`: keys of points
    without a record. `unfit`: for each invalid record, which counts as missing, the reason, by key.
    `margin`: largest difference of two accuracies [percentage points] that counts as none.
    `target`: the accuracy or loss to which the study asks for the time, or None. `settings`:
    settings that have the same value in all points, by dotted name. `tuning`: the
    settings of its hyperparameter searches.
    """

    study: str
    axes: list[str]
    question: str | None
    num_points: int
    missing: list[str]
    unfit: Mapping[str, str]
    margin: float
    target: dict[str, Any] | None
    settings: Mapping[str, Any]
    tuning: list[dict[str, Any]]


def of_one_rate(rows: Sequence[Mapping[str, Any]], axes: Sequence[str], rate: object) -> list[str]:
    """Return the schemes whose accuracy is compared with that of another scheme, or of other
    settings of the scheme, although several workers of both had one learning rate and momentum.

    These were thus searched for none of them. Rates that differ are trusted. `rows`: the runs of a
    study, as in runs.csv. `axes`: settings that differ between them. `rate`: setting training.rate
    of those without a column for it.
    """
    if "training.lr" in axes:  # which the study searches by itself
        return []
    own = [name for name in axes if name.startswith(("scheme", "model/"))]
    given = [name for name in axes if name != "seed" and name not in own]
    members = dict[tuple[str, ...], dict[tuple[str, ...], str]]()
    for row in rows:
        was_searched = row.get("training.rate", rate) == "tuned"
        if row["workers"] > 1 and row.get("top1") is not None and not was_searched:
            names = ("kind", "workers", "batch_size", *given, "lr", "momentum")
            place = tuple(str(row.get(name)) for name in names)
            member = tuple(str(row.get(name)) for name in ("scheme", *own))
            members.setdefault(place, {})[member] = row["scheme"]
    return sorted({name for of in members.values() if len(of) > 1 for name in of.values()})


def text_of(bits: bytes) -> str:
    """Return packed bits as compressed text."""
    return base64.b64encode(zlib.compress(bits, 9)).decode()


def bits_of(text: str, count: int) -> np.ndarray:
    """Return the `count` bits [count, bool] in a text made by `text_of`.

    Raises ValueError if the text has another number of bits.
    """
    try:
        unpacker = zlib.decompressobj()
        packed = unpacker.decompress(base64.b64decode(text, validate=True), max(count, 1) // 8 + 2)
    except zlib.error as error:
        raise ValueError(f"it has no packed bits: {error}") from error
    if count < 1 or len(packed) != (count + 7) // 8 or not unpacker.eof:
        raise ValueError(f"it has {len(packed)} bytes, which are not those of {count} bits")
    return np.unpackbits(np.frombuffer(packed, np.uint8), count=count).astype(bool)
