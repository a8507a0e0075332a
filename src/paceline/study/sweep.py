"""Sweep of a study, which skips points that have a record and so continues an earlier sweep.

A record that another study has of the same point is copied in place of training again. If points
are tuned, the trials of the study's tuning run first, in the same way and the same folder.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from paceline.record.archive import copy_record, record_elsewhere
from paceline.record.provenance import num_cores, source_digest
from paceline.record.record import Result
from paceline.record.tracking.log import MARKER, prepare_log
from paceline.study.logged_study import log_missing, logged_study
from paceline.study.preview import counts, estimate, finished_results, num_processes, table
from paceline.study.status_line import StatusLine
from paceline.study.study_folder import one_at_a_time, settle_partial_records, tell_unfit, unpack
from paceline.study.study_point import StudyPoint
from paceline.study.study_points import Study
from paceline.study.watch import SweepWatch

Points = Sequence[StudyPoint]
Launch = Callable[[Points], Sequence[Result | None]]  # runs points; None: without a result
Untrained = Callable[[Points], None]


def checked_study(
    name: str | None,
    root: Path,
    overrides: Sequence[str] = (),
    params: Mapping[str, Any] | None = None,
) -> Study:
    """Return the study of these arguments, see `Study`, all points of which can run.

    Records that were collected with the study, and are not in runs/, are unpacked first. Raises
    SettingError for an invalid setting of any point.
    """
    if name is not None:
        unpack(name, root)
    study = Study(name, root, overrides, params)
    points = [*study.trials_of_points, *study.in_order]
    for point in points:
        point.check()
    tell_unfit(point.folder for point in points)
    if not points[0].is_exchange:
        _warn_of_crowding(to_run(points))
    return study


def print_plan(study: Study) -> None:
    """Print the points, their records, and what a sweep would cost."""
    trials, points = study.trials_of_points, study.in_order
    if trials:
        _print_points("tuning, run first: ", trials)
    _print_points("", points)
    untuned = sum(not point.has_rate for point in points)
    if untuned:
        print(f"{untuned} tuned points follow with rates, and so keys, by the tuning")
    if points[0].is_exchange:
        return
    needed = to_run([*trials, *points])
    others = to_take_over(needed)
    left = [point for point in needed if point.key not in others]
    print(estimate(left, finished_results(study.root / "runs"), points[0].config.sweep.jobs))


def sweep(study: Study, launch: Launch, untrained: Untrained | None = None) -> bool:
    """Run the points of `study` that need it; return True if every point has a record then.

    Points in a queue for which nobody waits count as if they had. A point that the machine or the
    network made fail runs once more, and in the next sweep; it counts as one without a record.

    `launch(points)` runs points and returns their results. `untrained(points)`, by default
    `take_over`, is asked before, and writes those records that need no training.
    """
    config = study.points[0].config
    folder, mlflow = study.root / "runs" / config.study, config.measurement.mlflow
    prepare_log(mlflow)
    with one_at_a_time(folder):
        settle_partial_records(folder, mlflow.tracking_uri)
        study.refresh()
        watch = SweepWatch(config.study, study.root / "runs", config.sweep.jobs)
        runner = _Runner(launch, untrained or take_over, watch)
        with logged_study(study.in_order, folder, mlflow) as ending:
            if not _tune(study, runner):
                return not runner.is_awaited
            done = runner.complete(config.study, study.batches)
            ending.count(study.in_order)
            return done or not runner.is_awaited


def _tune(study: Study, runner: "_Runner") -> bool:
    """Run all first trials, then those of each extension; return True if all have a record then."""
    stage = name = f"{study.points[0].config.study}, tuning"
    new, tried, extension = study.first_trials, set[str](), 0
    while new:
        if not runner.complete(stage, [new], later=to_run(study.points)):
            return False
        tried |= {trial.key for trial in new}
        new = [trial for trial in study.trials_of_points if trial.key not in tried]
        extension += 1
        stage = f"{name}, extension {extension}"
    study.put_rates()
    return True


class _Runner:
    """Runs the stages of a sweep by `launch`, and shows how far each is."""

    def __init__(self, launch: Launch, untrained: Untrained, watch: SweepWatch) -> None:
        self._launch, self._untrained, self._watch = launch, untrained, watch
        self.is_awaited = True

    def complete(self, name: str, batches: Sequence[Points], later: Points = ()) -> bool:
        """Run those points of each of `batches` that need it; return True if all have a record.

        `later`: points of a stage after this one.
        """
        points = [point for batch in batches for point in batch]
        self._write_untrained(points)
        if needed := to_run(points):
            self._watch.begin(name, points, needed, later)
            with StatusLine(self._watch.status):
                left = self._queue(needed)
                local = list(left)
                for batch in batches:
                    self._run([point for point in batch if point in left and point.needs_run])
                    left = [point for point in left if point not in batch]
                    self._write_untrained(left)
                for point in local:  # once more: what made it fail may have passed
                    if point.result and point.is_unsettled:
                        self._run([point])
        log_missing(points)
        print(f"{name}: {counts(points)}", flush=True)
        left = [point for point in points if point.is_unsettled]
        if left and self.is_awaited:
            _tell_unsettled(left, len(points))
        return not left

    def _run(self, points: Points) -> None:
        if points:
            for point, result in zip(points, self._launch(points), strict=True):
                point.result = result
                if result is None:
                    point.refresh()

    def _write_untrained(self, points: Points) -> None:
        if needed := to_run(points):
            self._untrained(needed)
            for point in needed:
                point.refresh()

    def _queue(self, points: Points) -> list[StudyPoint]:
        """Run those of the points in jobs whose cluster has a queue; return the others."""
        from paceline.study.queue.queued_points import run_queued, waits  # torch takes seconds
        from paceline.study.queue.submission import has_queue

        queued = [point for point in points if has_queue(point.point)]
        if queued:
            run_queued([point.point for point in queued])
            self.is_awaited = all(waits(point.point) for point in queued)
        for point in queued:
            point.refresh()
        return [point for point in points if point not in queued]


def to_run(points: Points) -> list[StudyPoint]:
    """Return the points that need a run, by `sweep.rerun` and their records."""
    return [point for point in points if point.needs_run]


def to_take_over(points: Points) -> dict[str, Path]:
    """Return the folders of the records of other studies that stand for points, by their keys.

    `points`: those that need a run.
    """
    digest = source_digest()
    found = {
        point.key: record_elsewhere(point.folder, digest)
        for point in points
        if point.config.sweep.takes_over
    }
    return {key: folder for key, folder in found.items() if folder}


def take_over(points: Points) -> None:
    """Copy what `to_take_over` finds for `points`, and print a line for each."""
    found = to_take_over(points)
    for point in points:
        if point.key in found:
            source = found[point.key]
            copy_record(source, point.folder, point.config, without=[MARKER])
            print(f"{point.key} {point.words}: taken over from {source.parent.name}", flush=True)


def _tell_unsettled(points: Points, among: int) -> None:
    """Print in one line how many points are unsettled, and why the first is."""
    reasons = [point.result["reason"] for point in points if point.result]
    why = f" ({reasons[0]})" if reasons else ""
    message = f"{len(points)} of {among} points failed for reasons of their environment{why}"
    print(f"paceline: {message}; the next sweep runs them again", file=sys.stderr, flush=True)


def _print_points(name: str, points: Points) -> None:
    print(table(points))
    needed = to_run(points)
    others = len(to_take_over(needed))
    taken = f", {others} to take over from other studies" if others else ""
    print(f"{name}{counts(points)}; {len(needed) - others} to run{taken}", flush=True)


def _warn_of_crowding(points: Points) -> None:
    jobs = max((point.config.sweep.jobs for point in points), default=1)
    processes = jobs * max(map(num_processes, points), default=0)
    if jobs > 1 and processes > num_cores():
        message = f"{processes} processes at a time share {num_cores()} cores"
        print(f"paceline: sweep.jobs: {message}; throughput suffers", file=sys.stderr)
