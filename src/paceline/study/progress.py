"""Shows the progress of a run or a sweep on standard error; standard output is for results.

The progress is read from files that running points write, also points on other machines.
"""

import csv
import math
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, TextIO

from paceline.errors import printable
from paceline.grouped import grouped
from paceline.record.disturbance import disturbance
from paceline.record.mlflow import yield_to_workers
from paceline.record.point_config import PointConfig
from paceline.record.reading import read_result, record_version
from paceline.record.record import partial_records, records_in
from paceline.record.result import Result
from paceline.study.study_point import Points, StudyPoint

PREFIX = "progress: "  # of a line where there is no terminal
_PERIOD = 1.0  # seconds between updates
_PLAIN_PERIOD = 30.0  # seconds between lines where there is no terminal


class Status(NamedTuple):
    """State of the work, as it is shown.

    `name`: what is running. `share`: the done share of the work; None before it has begun. `note`:
    further words.
    """

    name: str
    share: float | None
    note: str


class Progress(NamedTuple):
    """State of a run: a row of progress.csv.

    `share`: the share of its samples that is done. `images_per_second`: throughput since the
    previous state on the training clock; None if this clock has not advanced since.
    """

    share: float
    train_loss: float
    images_per_second: float | None


def read_progress(folder: Path) -> Progress | None:
    """Return the last state in the partial record `folder`; None if none is written yet."""
    try:
        lines = (folder / "progress.csv").read_text().split("\n")[:-1]  # of which all are whole
    except FileNotFoundError:
        return None
    if len(lines) < 2:
        return None
    (row,) = csv.DictReader([lines[0], lines[-1]])
    rate = row["images_per_second"]
    return Progress(float(row["share"]), float(row["train_loss"]), float(rate) if rate else None)


def run_status(name: str, kind: str, folder: Path) -> Status:
    """Return the state of the run that writes the partial record `folder`.

    `name`: name of the run. `kind`: kind of its throughput, measured, paced or virtual.
    """
    now = read_progress(folder)
    if now is None:
        return Status(name, None, "starting")
    parts = ["evaluating"] if now.share >= 1 else []
    parts.append(f"training loss {now.train_loss:.4g}")
    if now.images_per_second is not None:
        parts.append(f"{now.images_per_second:,.0f} images/s {kind}")
    return Status(name, min(now.share, 1.0), ", ".join(parts))


def stage_status(name: str, points: Points, before: Mapping[str, int | None]) -> Status:
    """Return the state of a stage of a sweep, which consists of `points`.

    `before`: versions of the records before, by key, of those points that must run.
    """
    running = dict(partial_records(points[0].folder.parent))
    done, share = 0, 0.0
    for point in points:
        if point.key not in before or record_version(point.folder) not in (None, before[point.key]):
            done += 1
        elif point.key in running and (progress := read_progress(running[point.key])):
            share += min(progress.share, 1.0)
    return Status(name, (done + share) / len(points), f"{done} of {len(points)} points")


def time_of(points: Points, results: Iterable[Result]) -> str | None:
    """Return words for the time that `points` take, with `sweep.jobs` points at a time.

    It follows from the median time per sample of those `results` of finished points that have the
    same scheme, model, data and cluster. Of these, those of the same study count if there are any,
    because other studies may pace their steps; then those of the same number of workers and batch
    size. Returns None if no point's time can be estimated.
    """
    by_names = grouped(results, _names)
    found = [_seconds(point, by_names.get(_names(point.config.names), ())) for point in points]
    known = [
        seconds / point.config.sweep.jobs
        for point, seconds in zip(points, found, strict=True)
        if seconds is not None
    ]
    rest = len(points) - len(known)
    more = f" and {rest} points of unknown length" if rest else ""
    return f"about {duration(sum(known))}{more}" if known else None


def _names(of: Mapping[str, Any]) -> tuple[str | None, ...]:
    return tuple(of.get(name) for name in ("scheme", "model", "data", "cluster"))


def _seconds(point: StudyPoint, results: Sequence[Result]) -> float | None:
    values = point.config.values
    if not results:
        return None
    samples = values["training"]["samples"]
    if samples is None:
        samples = values["training"]["epochs"] * max(each["distinct_samples"] for each in results)
    for names in (["study"], ["workers", "batch_size"]):
        alike = [each for each in results if all(each[n] == values[n] for n in names)]
        results = alike or results
    return median(each["wall_seconds"] / each["samples"] for each in results) * samples


def finished_results(runs: Path, others: Iterable[Result] = ()) -> list[Result]:
    """Return the result of every finished training of all studies in `runs`, and of `others`."""
    records = [record for study in sorted(runs.glob("[!.]*")) for record in records_in(study)]
    found = [*filter(None, map(read_result, records)), *others]
    return [each for each in found if each["status"] == "finished" and each.get("samples")]


def duration(seconds: float) -> str:
    """Format a duration in a suitable unit: `40 s`, `2.5 minutes`, `3.0 hours`."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 3600:.1f} hours" if seconds >= 3600 else f"{seconds / 60:.1f} minutes"


@contextmanager
def status_line(status: Callable[[], Status]) -> Generator[None]:
    """Show the progress of the work inside, and the time that is left.

    On a terminal, it is a bar that vanishes at the end; elsewhere, a line every 30 seconds.
    `status` returns the state of the work; a thread calls it regularly.
    """
    stopped, look = threading.Event(), with_time_left(status)

    def follow() -> None:
        yield_to_workers()
        with display(sys.stderr) as show:
            while not stopped.wait(_PERIOD):
                with suppress(OSError):  # a record was replaced while it was read: the next look
                    show(look())

    thread = threading.Thread(target=follow, name="status", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def with_time_left(
    status: Callable[[], Status], now: Callable[[], float] = time.monotonic
) -> Callable[[], Status]:
    """Return `status` with the time that is left if the work goes on as it has since it began."""
    began: tuple[float, float] | None = None  # time [s] and share of the first state

    def look() -> Status:
        nonlocal began
        state = status()
        if state.share is None:
            return state
        began = began or (now(), state.share)
        seconds, done = now() - began[0], state.share - began[1]
        if done <= 0 or state.share >= 1:
            return state
        left = duration((1 - state.share) * seconds / done)
        return state._replace(note=f"{left} left, {state.note}")

    return look


Show = Callable[[Status], None]


@contextmanager
def display(file: TextIO, now: Callable[[], float] = time.monotonic) -> Generator[Show]:
    """Yield a function that shows a state on `file`, as a bar on a terminal, else as lines."""
    if file.isatty():
        with _bar(file) as show_bar:
            yield show_bar
        return
    due = -math.inf

    def show(status: Status) -> None:
        nonlocal due
        if status.share is not None and now() >= due:
            due = now() + _PLAIN_PERIOD
            text = f"{status.name}: {100 * status.share:.0f} %, {status.note}"
            print(f"{PREFIX}{text}", file=file, flush=True)

    yield show


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
            total = None if status.share is None else 1.0
            bar.update(task, total=total, completed=status.share or 0.0, visible=True)
            bar.update(task, description=status.name, note=status.note, refresh=True)
            file.write("\r")  # so that what a point prints stands in place of the bar
            file.flush()

        yield show


def points_table(points: Points) -> str:
    """Return a line for each point: key, axes, status, top-1 on test images, and images/s."""
    axes = list(dict.fromkeys(name for point in points for name in point.axes))
    rows = [["key", *axes, "status", "top-1, test", "images/s"]]
    for point in points:
        found = point.result or {}
        top1, speed = found.get("test_top1"), found.get("images_per_second")
        score = "-" if top1 is None else f"{100 * top1:.2f} %"
        throughput = "-" if speed is None else f"{speed:,.0f} {found['kind']}"
        values = (str(point.axes.get(name, "")) for name in axes)
        rows.append([point.key, *values, point.status or "to do", score, throughput])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def result_line(number: int | None, config: PointConfig, result: Result, note: str) -> str:
    """Return the line that tells how a point has ended.

    `number`: position of the point in a multirun, from 1; None outside of a multirun. `note`: words
    at the end of the line.
    """
    workers, batch_size = config.values["workers"], config.values["batch_size"]
    settings = f"workers={workers} batch_size={batch_size} lr={config.lr} seed={config.seed}"
    outcome = result["status"]
    if result["reason"]:  # also of a finished run: a worker was lost
        outcome += f" ({printable(result['reason'])})"
    if result["images_per_second"]:
        outcome += f", {result['images_per_second']:,.0f} images/s {result['kind']}"
    if (top1 := result.get("test_top1")) is not None:
        outcome += f", top-1 {100 * top1:.2f} % on test images"
    if words := disturbance(result):
        outcome += f" (disturbed: {words})"
    start = f"point {number}: " if number else ""
    return f"{start}{config.names['scheme']} {settings}: {outcome}, {note}"
