"""Sweep of a study, which skips points that have a record and so continues an earlier sweep.

A record that another study has of the same point is copied in place of training again.

If points are tuned, the study's tuning runs first, in the same way and the same folder.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from paceline.record.provenance import num_cores, source_digest
from paceline.record.reading import read_result
from paceline.record.tracking.log import prepare_log
from paceline.study.abstract_tuning import AbstractTuning, trial_override
from paceline.study.logged_study import log_missing, logged_study
from paceline.study.preview import counts, estimate, finished_results, num_processes, table
from paceline.study.status_line import StatusLine
from paceline.study.study_blocks import blocks_of
from paceline.study.study_folder import (
    one_at_a_time,
    settle_partial_records,
    tell_unfit,
    unpack,
)
from paceline.study.study_points import StudyPoint, multirun_arguments, study_points
from paceline.study.sweep_watch import SweepWatch
from paceline.study.take_over import take_over, to_take_over
from paceline.study.tuning import (
    Configuration,
    points_of,
    study_tuning,
    tuned_configurations,
    untried,
)
from paceline.study.unsettled import tell_unsettled, unsettled

Untrained = Callable[[Sequence[StudyPoint]], None]


def sweep(
    study: str,
    root: Path,
    multirun: Callable[[list[str]], None],
    overrides: Sequence[str] = (),
    *,
    dry_run: bool = False,
    untrained: Untrained = take_over,
) -> bool:
    """Run the points of `study` that need it; return True if every point has a record then.

    Points in a queue for which nobody waits count as if they had. A point that the machine or the
    network made fail runs once more, and in the next sweep; it counts as one without a record.

    Records that were collected with the study, and are not in runs/, are unpacked first.
    `multirun(overrides)` runs Hydra's multirun, and itself skips points that need no run.
    `untrained(points)` is asked before each, and writes those records that need no training. Raises
    SettingError for an invalid setting of any point, before the first one runs.
    """
    unpack(study, root)
    points = study_points(study, root, overrides)
    blocks = blocks_of(points)
    points = [point for block in blocks for point in block] or points  # in the order of their runs
    tuning = study_tuning(points) if any(point.is_tuned for point in points) else None
    tuned = tuned_configurations(study, root, overrides, tuning) if tuning else []
    trials = points_of(tuned)
    for point in (*trials, *points):
        if point.has_rate:
            _ = point.point  # built, and so checked
    tell_unfit(point.folder for point in (*trials, *points))
    _warn_of_crowding(points_to_run([*trials, *points]))
    if dry_run:
        _print_plan(trials, points, root)
        return True
    mlflow = points[0].config.measurement.mlflow
    prepare_log(mlflow)
    folder = root / "runs" / study
    with one_at_a_time(folder):
        settle_partial_records(folder, mlflow.tracking_uri)
        watch = SweepWatch(study, root / "runs", points[0].config.sweep.jobs)
        runner = _Runner(multirun, untrained, watch)
        arguments = multirun_arguments(study, root, overrides)
        if blocks:  # Hydra's own order is that of the axes
            arguments = [list(point.overrides) for point in points_to_run(points)]
        with logged_study(points, folder, mlflow) as ending:
            if tuning:
                complete = partial(runner.complete, later=points_to_run(points))
                if not _tune(study, root, overrides, tuning, tuned, complete):
                    return not runner.is_awaited
                points = study_points(study, root, overrides)  # with their rates
            done = runner.complete(study, points, arguments)
            ending.count(points)
            return done or not runner.is_awaited


def _tune(
    study: str,
    root: Path,
    overrides: Sequence[str],
    tuning: AbstractTuning,
    tuned: Sequence[Configuration],
    complete: Callable[[str, Sequence[StudyPoint], Iterable[list[str]]], bool],
) -> bool:
    """Run all first trials, then those of each extension; return True if all have a record then.

    `tuned`: configurations as the records were before. `complete`: see `_Runner`.
    """
    everywhere = [*tuning.overrides(), trial_override(tuning.first)]
    arguments = [[*each, *everywhere] for each in multirun_arguments(study, root, overrides)]
    new = [each.points[trial] for each in tuned for trial in tuning.first]
    if not complete(f"{study}, tuning", new, arguments):
        return False
    tried, extension = {point.key for point in new}, 0
    while further := untried(tuned_configurations(study, root, overrides, tuning), tried):
        new, extension = points_of(further), extension + 1
        # a generator, so that it is asked when records of other studies have been taken over
        arguments = (each.arguments for each in further if points_to_run(points_of([each])))
        if not complete(f"{study}, tuning, extension {extension}", new, arguments):
            return False
        tried |= {point.key for point in new}
    return True


class _Runner:
    """Runs the stages of a sweep by `multirun`, and shows how far each is."""

    def __init__(
        self, multirun: Callable[[list[str]], None], untrained: Untrained, watch: SweepWatch
    ) -> None:
        self._multirun, self._untrained, self._watch = multirun, untrained, watch
        self.is_awaited, self._queued = True, set[str]()

    def complete(
        self,
        name: str,
        points: Sequence[StudyPoint],
        arguments: Iterable[list[str]],
        later: Sequence[StudyPoint] = (),
    ) -> bool:
        """Run a multirun by each of `arguments` if any point needs it.

        Returns True if all points have a record then. `later`: points of a stage after this one.
        """
        self._untrained(points_to_run(points))
        to_run = points_to_run(points)
        if to_run:
            self._watch.begin(name, points, to_run, later)
            with StatusLine(self._watch.status):
                for each in self._queue(to_run, arguments):
                    self._multirun(each)
                    self._untrained(points_to_run(points))
                local = [point for point in points if point.key not in self._queued]
                for point in unsettled(local):  # once more: what made it fail may have passed
                    if read_result(point.folder):
                        self._multirun([*point.overrides, "sweep.rerun=none"])
        points = [replace(point, result=read_result(point.folder)) for point in points]
        log_missing(points)
        print(f"{name}: {counts(points)}")
        left = unsettled(points)
        if left and self.is_awaited:
            tell_unsettled(left, len(points))
        return not left

    def _queue(
        self, points: Sequence[StudyPoint], arguments: Iterable[list[str]]
    ) -> Iterable[list[str]]:
        """Run those of the points in jobs whose cluster has a queue; return the multiruns left."""
        from paceline.study.queue.submission import has_queue  # torch takes seconds
        from paceline.study.queued_points import run_queued, waits

        queued = [point for point in points if has_queue(point.point)]
        if not queued:
            return arguments
        self._queued |= {point.key for point in queued}
        run_queued([point.point for point in queued])
        self.is_awaited = all(waits(point.point) for point in queued)
        return [list(point.overrides) for point in points if point not in queued]


def points_to_run(points: Sequence[StudyPoint]) -> list[StudyPoint]:
    """Return the points that need a run, by `sweep.rerun` and the records that are there now."""
    digest = source_digest()
    return [p for p in points if p.config.sweep.needs_run(read_result(p.folder), digest)]


def _print_plan(trials: Sequence[StudyPoint], points: Sequence[StudyPoint], root: Path) -> None:
    if trials:
        _print_points("tuning, run first: ", trials)
    _print_points("", points)
    untuned = sum(not point.has_rate for point in points)
    if untuned:
        print(f"{untuned} tuned points follow with rates, and so keys, by the tuning")
    jobs = points[0].config.sweep.jobs
    needed = points_to_run([*trials, *points])
    others = to_take_over(needed)
    to_run = [point for point in needed if point.key not in others]
    print(estimate(to_run, finished_results(root / "runs"), jobs))


def _print_points(name: str, points: Sequence[StudyPoint]) -> None:
    print(table(points))
    needed = points_to_run(points)
    others = len(to_take_over(needed))
    taken = f", {others} to take over from other studies" if others else ""
    print(f"{name}{counts(points)}; {len(needed) - others} to run{taken}", flush=True)


def _warn_of_crowding(points: Sequence[StudyPoint]) -> None:
    jobs = max((point.config.sweep.jobs for point in points), default=1)
    processes = jobs * max(map(num_processes, points), default=0)
    if jobs > 1 and processes > num_cores():
        message = f"{processes} processes at a time share {num_cores()} cores"
        print(f"paceline: sweep.jobs: {message}; throughput suffers", file=sys.stderr)
