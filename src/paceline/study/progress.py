"""Shows the progress of a run or a sweep on standard error; standard output is for results.

The progress is read from files that running points write, also points on other machines.
"""

import csv
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, TextIO

from paceline.errors import printable
from paceline.record.mlflow import run_label, yield_to_workers
from paceline.record.point_config import PointConfig
from paceline.record.reading import read_result, record_version
from paceline.record.record import partial_records
from paceline.record.result import Result
from paceline.study.study_point import Points, StudyPoint

PREFIX = "progress: "  # of a line where there is no terminal
_PERIOD = 1.0  # seconds between updates
_PLAIN_PERIOD = 30.0  # seconds between lines where there is no terminal
_TAIL = 512  # bytes at the end of the file that contain the last whole row


class Status(NamedTuple):
    """State of the work, as it is shown.

    `name`: what is running. `share`: the done share of the work; None before it has begun. `note`:
    further words.
    """

    name: str
    share: float | None
    note: str


class Progress(NamedTuple):
    """State of a run at `time` [seconds since 1970].

    `share`: the share of its samples that is done. `images_per_second`: throughput since the
    previous state on the training clock; None if this clock has not advanced since.
    """

    share: float
    train_loss: float
    images_per_second: float | None
    time: float


def read_progress(folder: Path) -> Progress | None:
    """Return the last state in the partial record `folder`; None if none is written yet."""
    path = folder / "progress.csv"
    try:
        with path.open("rb") as file:
            header = file.readline()
            file.seek(max(len(header), path.stat().st_size - _TAIL))
            lines = file.read().split(b"\n")[:-1]  # a worker may be in the middle of a line
            modified = os.fstat(file.fileno()).st_mtime
    except FileNotFoundError:
        return None
    if not lines:
        return None
    (row,) = csv.DictReader([header.decode(), lines[-1].decode()])
    rate = row["images_per_second"]
    loss = float(row["train_loss"])
    return Progress(float(row["share"]), loss, float(rate) if rate else None, modified)


class RunWatch:
    """Watches the run that writes the partial record `folder`.

    `name`: name of the run. `kind`: kind of its throughput, measured, paced or virtual.
    """

    def __init__(self, name: str, kind: str, folder: Path) -> None:
        self._name, self._kind, self._folder = name, kind, folder
        self._first: Progress | None = None

    def status(self) -> Status:
        """Return the state of the run; its share is None in the first second of training."""
        now = read_progress(self._folder)
        if now is None:
            return Status(self._name, None, "starting")
        first = self._first = self._first or now
        left, done, rate = "", now.share - first.share, now.images_per_second
        if now.share >= 1:
            left = "evaluating"
        elif done > 0 and now.time > first.time:  # else the clock of the machine was set back
            left = f"{duration((1 - now.share) * (now.time - first.time) / done)} left"
        speed = f"{rate:,.0f} images/s {self._kind}" if rate is not None else ""
        parts = [left, f"training loss {now.train_loss:.4g}", speed]
        return Status(self._name, min(now.share, 1.0), ", ".join(filter(None, parts)))


class SweepWatch:
    """Watches the points of a study while they run, stage by stage.

    `runs`: folder of all records.
    """

    def __init__(self, study: str, runs: Path) -> None:
        self._runs, self._folder = runs, runs / study
        self._costs: Costs | None = None

    def begin(self, stage: str, points: Points, to_run: Points, later: Points) -> None:
        """Begin to watch a stage of the sweep.

        `points`: all points of the stage. `to_run`: those of them that must run. `later`: points of
        later stages.
        """
        self._stage, self._later = stage, later
        self._points = {point.key: point for point in points}
        self._before = {point.key: record_version(point.folder) for point in to_run}
        self._results: dict[str, Result] = {
            point.key: point.result
            for point in points
            if point.result and point.key not in self._before
        }

    def status(self) -> Status:
        if self._costs is None:
            self._costs = Costs(finished_results(self._runs))
        self._read_new_results(self._costs)
        shares = self._running()
        num_done, count = len(self._results), len(self._points)
        parts = [f"{num_done} of {count} points"]
        if self._later:
            parts.append(f"then {len(self._later)} more")
        undone = [point for key, point in self._points.items() if key not in self._results]
        if left := self._costs.left([*undone, *self._later], shares):
            parts.append(f"{left} left")
        done = (num_done + sum(shares.values())) / count
        return Status(self._stage, done, ", ".join([*parts, *self._best()]))

    def _read_new_results(self, costs: "Costs") -> None:
        for key, before in self._before.items():
            point = self._points[key]
            if key not in self._results and record_version(point.folder) not in (None, before):
                if (result := read_result(point.folder)) is None:
                    continue  # not whole yet, or unfit
                self._results[key] = result
                if result["status"] == "finished":
                    costs.add(result)

    def _running(self) -> dict[str, float]:
        """Return how much of each running point is done, by key."""
        shares = {}
        for key, folder in partial_records(self._folder):
            progress = read_progress(folder)
            if progress and key in self._points and key not in self._results:
                shares[key] = min(progress.share, 1.0)
        return shares

    def _best(self) -> list[str]:
        finished = [key for key, each in self._results.items() if each["status"] == "finished"]
        scored = [key for key in finished if self._results[key]["top1"] is not None]
        if not scored:
            return []
        key = max(scored, key=lambda key: self._results[key]["top1"])
        point, top1 = self._points[key], self._results[key]["top1"]
        return [f"best so far {run_label(point.config.values, list(point.axes))}: {top1:.2%} top-1"]


class Costs:
    """Estimates how long points take, from `results` of finished points of any study.

    The estimate follows from the median time per sample of finished points with the same scheme,
    model, data and cluster. Of these, it takes those of the same study if there are any, because
    other studies may pace their steps; then those of the same number of workers and batch size.
    """

    def __init__(self, results: Iterable[Result]) -> None:
        self._by_names: dict[tuple[str | None, ...], list[Result]] = {}
        for result in results:
            self.add(result)

    def add(self, result: Result) -> None:
        self._by_names.setdefault(_names(result), []).append(result)

    def seconds(self, point: StudyPoint) -> float | None:
        """Return the estimated seconds of the point; None if no result matches."""
        matching, values = self._by_names.get(_names(point.config.names)), point.config.values
        if not matching:
            return None
        samples = values["training"]["samples"]
        if samples is None:
            most = max(each["distinct_samples"] for each in matching)
            samples = values["training"]["epochs"] * most
        for names in (["study"], ["workers", "batch_size"]):
            same = [each for each in matching if all(each[n] == values[n] for n in names)]
            matching = same or matching
        return median(each["wall_seconds"] / each["samples"] for each in matching) * samples

    def left(self, points: Points, shares: Mapping[str, float] | None = None) -> str | None:
        """Return words for the time that `points` take, with `sweep.jobs` points at a time.

        Returns None if no point's time can be estimated. `shares`: for points that are running, the
        share of the work that is already done, by key.
        """
        known = [
            (1 - (shares or {}).get(point.key, 0.0)) * seconds / point.config.sweep.jobs
            for point in points
            if (seconds := self.seconds(point)) is not None
        ]
        rest = len(points) - len(known)
        more = f" and {rest} points of unknown length" if rest else ""
        return f"about {duration(sum(known))}{more}" if known else None


def _names(of: Mapping[str, Any]) -> tuple[str | None, ...]:
    return tuple(of.get(name) for name in ("scheme", "model", "data", "cluster"))


def finished_results(runs: Path, others: Iterable[Result] = ()) -> list[Result]:
    """Return the result of every finished training of all studies in `runs`, and of `others`."""
    paths = sorted(runs.glob("[!.]*/[!.]*/result.json"))
    results = [result for path in paths if (result := read_result(path.parent))]
    found = [*results, *others]
    return [each for each in found if each["status"] == "finished" and each.get("samples")]


def duration(seconds: float) -> str:
    """Format a duration in a suitable unit: `40 s`, `2.5 minutes`, `3.0 hours`."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 3600:.1f} hours" if seconds >= 3600 else f"{seconds / 60:.1f} minutes"


@contextmanager
def status_line(status: Callable[[], Status]) -> Generator[None]:
    """Show the progress of the work inside.

    On a terminal, it is a bar that vanishes at the end; elsewhere, a line every 30 seconds.
    `status` returns the state of the work; a thread calls it regularly.
    """
    stopped = threading.Event()

    def follow() -> None:
        yield_to_workers()
        with display(sys.stderr) as show:
            while not stopped.wait(_PERIOD):
                with suppress(OSError):  # a record was replaced while it was read: the next look
                    show(status())

    thread = threading.Thread(target=follow, name="status", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


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
    """Return a line for each point: key, axes, status, top-1 and images/s."""
    axes = list(dict.fromkeys(name for point in points for name in point.axes))
    rows = [["key", *axes, "status", "top-1", "images/s"]]
    for point in points:
        found = point.result or {}
        top1, speed = found.get("top1"), found.get("images_per_second")
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
    if result["top1"] is not None:
        outcome += f", top-1 {100 * result['top1']:.2f} %"
    start = f"point {number}: " if number else ""
    return f"{start}{config.names['scheme']} {settings}: {outcome}, {note}"
