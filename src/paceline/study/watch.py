"""Watches over a run and over a sweep, by the files that points write wherever they run."""

import csv
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from paceline.record.reading import read_result, record_version
from paceline.record.record import Result, partial_records
from paceline.record.tracking.log import run_label
from paceline.study.preview import Costs, duration, finished_results
from paceline.study.status_line import Status
from paceline.study.study_point import StudyPoint

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


class RunWatch:
    """Watch over the partial record `folder`. `name`: of the run; `kind`: of its images/s."""

    def __init__(self, name: str, kind: str, folder: Path) -> None:
        self._name, self._kind, self._folder = name, kind, folder
        self._first: Progress | None = None

    def status(self) -> Status:
        """Return the state of the run, which has begun when it has trained for a second."""
        now = read_progress(self._folder)
        if now is None:
            return Status(self._name, None, "starting")
        self._first = self._first or now
        rate = now.images_per_second
        parts = [
            "evaluating" if now.share >= 1 else self._left(self._first, now),
            f"training loss {now.train_loss:.4g}",
            f"{rate:,.0f} images/s {self._kind}" if rate is not None else "",
        ]
        return Status(self._name, min(now.share, 1.0), ", ".join(filter(None, parts)))

    def _left(self, first: Progress, now: Progress) -> str:
        done = now.share - first.share
        if done <= 0:
            return ""
        return f"{duration((1 - now.share) * (now.time - first.time) / done)} left"


class SweepWatch:
    """Watch over the points of a study that run, stage by stage.

    `runs`: folder of all records. `jobs`: number of points at a time.
    """

    def __init__(self, study: str, runs: Path, jobs: int) -> None:
        self._runs, self._folder, self._jobs = runs, runs / study, jobs
        self._costs: Costs | None = None

    def begin(
        self,
        stage: str,
        points: Sequence[StudyPoint],
        to_run: Sequence[StudyPoint],
        later: Sequence[StudyPoint],
    ) -> None:
        """Watch the points of a stage, of which those `to_run` are not done, then those `later`."""
        self._stage, self._later = stage, later
        self._points = {point.key: point for point in points}
        self._before = {point.key: record_version(point.folder) for point in to_run}
        self._results: dict[str, Result] = {
            point.key: point.result
            for point in points
            if point.result and point.key not in self._before
        }

    def status(self) -> Status:
        """Return the state of the present stage."""
        self._read_new_results()
        shares = self._running()
        num_done, count = len(self._results), len(self._points)
        parts = [f"{num_done} of {count} points"]
        if self._later:
            parts.append(f"then {len(self._later)} more")
        parts += [*self._left(shares), *self._best()]
        done = (num_done + sum(shares.values())) / count
        return Status(self._stage, done, ", ".join(parts))

    def _read_new_results(self) -> None:
        if self._costs is None:
            self._costs = Costs(finished_results(self._runs))
        for key, before in self._before.items():
            point = self._points[key]
            if key not in self._results and record_version(point.folder) not in (None, before):
                if (result := read_result(point.folder)) is None:
                    continue  # not whole yet, or unfit
                self._results[key] = result
                if result["status"] == "finished":
                    self._costs.add(result)

    def _running(self) -> dict[str, float]:
        """Return the share that is done of each point under way."""
        shares = {}
        for key, folder in partial_records(self._folder):
            progress = read_progress(folder)
            if progress and key in self._points and key not in self._results:
                shares[key] = min(progress.share, 1.0)
        return shares

    def _left(self, shares: dict[str, float]) -> list[str]:
        assert self._costs is not None
        left = [point for key, point in self._points.items() if key not in self._results]
        seconds = [
            (1 - shares.get(point.key, 0.0), self._costs.seconds(point))
            for point in (*left, *self._later)
        ]
        known = [share * each for share, each in seconds if each is not None]
        if not known:
            return []
        unknown = len(seconds) - len(known)
        more = f" and {unknown} points of unknown length" if unknown else ""
        return [f"about {duration(sum(known) / self._jobs)} left{more}"]

    def _best(self) -> list[str]:
        finished = [key for key, each in self._results.items() if each["status"] == "finished"]
        if not finished:
            return []
        key = max(finished, key=lambda key: self._results[key]["top1"])
        point, top1 = self._points[key], self._results[key]["top1"]
        return [f"best so far {run_label(point.config.values, list(point.axes))}: {top1:.2%} top-1"]
