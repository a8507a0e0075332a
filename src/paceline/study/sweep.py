"""Runs the points of a study that have no record yet, and so continues an earlier sweep.

If learning rates are tuned, the trials of the study's hyperparameter search run first.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from filelock import Timeout

from paceline.errors import SettingError, tell
from paceline.record.archive import (
    ARCHIVE,
    Record,
    missing_records,
    read_records,
    write_records,
)
from paceline.record.data_digest import look_again
from paceline.record.mlflow import RecordLog
from paceline.record.provenance import num_cores
from paceline.record.reading import fault_of, latest_result, read_result, record_version
from paceline.record.record import Lock, PartialRecord, is_under_way, partial_records
from paceline.record.rerun import failed_by_environment
from paceline.record.result import Result
from paceline.study.progress import stage_status, status_line
from paceline.study.slurm_jobs import require_jobs
from paceline.study.study_point import Points, StudyPoint, counts, most_processes, to_run
from paceline.study.study_points import Study

Launch = Callable[[Points], Sequence[Result | None]]  # runs points and returns their results
Write = Callable[[Points], None]  # writes the records of those points that need no training


def checked_study(
    name: str | None,
    root: Path,
    overrides: Sequence[str] = (),
    params: Mapping[str, Any] | None = None,
    *,
    unpack: bool = True,
    source: Path | None = None,
    checks: bool = True,
) -> Study:
    """Return the study, after its archived records are unpacked and its points are checked.

    The arguments are passed to `Study`. Without `unpack`, the archive's records only count as those
    of the points, and nothing is written. `source`: another archive, whose records of the study's
    points are taken up. Without `checks`, nothing is checked. Raises SettingError for an invalid
    setting of any point.
    """
    archived: Mapping[str, Result] = {}
    if name is not None and (archive := root / "reports" / name / ARCHIVE).exists():
        missing = missing_records(archive, runs := root / "runs" / name)
        if unpack:
            write_records(missing, runs)
        else:
            archived = {key: result for key, (_, result) in missing.items()}
        if missing:
            verb = "unpacked from" if unpack else "to unpack from"
            print(f"{len(missing)} records {verb} {archive.relative_to(root)}", flush=True)
    look_again()
    study = Study(name, root, overrides, params, archived)
    if source is not None:
        _take_up(study, source, unpack)
    if checks:
        _check(study, runs=unpack)
    return study


def _check(study: Study, *, runs: bool) -> None:
    """Check all points, and that there is a queue if points are to run in it (`runs`)."""
    if (study.root / "params.yaml").exists():  # as `dvc exp run -S training.lr=0.1` writes it
        message = "params.yaml is not read; dvc exp run -S experiments/STUDY.yaml:SETTING=VALUE is"
        tell(message)
    points = [*study.trials_of_points, *study.points]
    for point in points:
        point.check()
    queued = [each for each in to_run(points) if each.has_rate and each.point.cluster.submitted_to]
    if runs and queued:
        require_jobs(queued[0].config.study)
    tell_unfit(point.folder for point in points)
    _warn_of_crowding(to_run(points))
    _warn_of_no_effect(study)


def _take_up(study: Study, source: Path, unpack: bool) -> None:
    """Take up those records of an archive that the study has points for, but no settled record.

    Without `unpack`, nothing is written. Raises SettingError("--from") for an invalid archive.
    """
    runs = study.root / "runs" / study.points[0].config.study
    try:
        records = read_records(source, runs.name)
    except SettingError as error:
        raise SettingError("--from", error.message) from error
    study.archived.update({key: result for key, (_, result) in records.items()})
    study.refresh()  # the results of trials may tell further trials
    keys = {point.key for point in (*study.trials_of_points, *study.points)} & records.keys()
    kept = {key: result for key in keys if (result := read_result(runs / key))}
    new: dict[str, Record] = {
        key: records[key]
        for key in keys
        if key not in kept or (failed_by_environment(kept[key]) and kept[key] != records[key][1])
    }
    if unpack:
        write_records(new, runs)
        study.archived.clear()
    study.refresh()
    other = sum(key not in new and kept[key] != records[key][1] for key in keys)
    parts = {
        "": f"{len(new)} records {'taken up' if unpack else 'to take up'} from {source}",
        "of other settings are left out": len(records) - len(keys),
        "have another result here, which is kept": other,
    }
    print("; ".join(f"{n} {words}".strip() for words, n in parts.items() if n), flush=True)


def sweep(study: Study, launch: Launch, *write: Write) -> bool:
    """Run those points of `study` that must run; return True if all ended well.

    That is so if no record is missing at the end, no point failed that ran, other than by the fault
    that it injects, and not every point failed earlier.

    `launch(points)` runs points and returns their results. Before that, each function in `write`
    writes those records that need no training. A point that fails because of the machine or the
    network is tried once more; if it fails again, its record counts as missing. So does that of a
    point whose last run failed while an earlier one counts. If points are in a queue and the sweep
    does not wait for them, no record counts as missing.
    """
    config, points = study.points[0].config, study.points
    axes = [n for n in points[0].axes if len({str(each.axes.get(n)) for each in points}) > 1]
    folder, mlflow = study.root / "runs" / config.study, config.measurement.mlflow
    with one_at_a_time(folder):
        settle_partial_records(folder)
        study.refresh()
        needed = to_run([*study.trials_of_points, *study.points])
        ready = (each for each in needed if each.has_rate)
        for point in {str(each.config.target("data")): each for each in ready}.values():
            point.point.require_data()
        runner = _Runner(launch, write)
        log = RecordLog(folder, mlflow, axes, present=study.keys, note=config.question)
        if not needed:
            log.catch_up()
        with log if needed else nullcontext():
            done = _tune(study, runner) and runner.complete(config.study, study.grids)
        if log.failure:
            tell(f"measurement.mlflow.tracking_uri: {log.failure}")
        elif mlflow.tracking_uri:
            print(f"runs in MLflow: {log.address}", flush=True)
        if not runner.is_awaited:
            return True
        all_failed = all(each.status == "failed" for each in study.points)
        return done and not (runner.has_failed or all_failed)


def _tune(study: Study, runner: "_Runner") -> bool:
    """Run the trials of the study's hyperparameter search, then set the rates that it found.

    Results of trials tell further ones. Returns False if a trial has no record at the end; no rates
    are set then.
    """
    stage = name = f"{study.points[0].config.study}, tuning"
    tried, rounds = set[str](), 1
    while new := [trial for trial in study.trials_of_points if trial.key not in tried]:
        if not runner.complete(stage, [new]):
            return False
        tried |= {trial.key for trial in new}
        rounds += 1
        stage = f"{name}, round {rounds}"
    study.put_rates()
    return True


class _Runner:
    """Runs the stages of a sweep by `launch`, and shows their progress.

    A stage consists of trials, or of the points of the study. `is_awaited`: False if there are
    points in a queue for which the sweep does not wait. `has_failed`: True if a point failed that
    ran, other than by the fault that it injects.
    """

    def __init__(self, launch: Launch, write: Sequence[Write]) -> None:
        self._launch, self._write = launch, write
        self.is_awaited, self.has_failed = True, False

    def complete(self, name: str, batches: Sequence[Points]) -> bool:
        """Run the points that must run, batch by batch; return False if one has no record then."""
        points = [point for batch in batches for point in batch]
        self._write_untrained(points)
        needed = to_run(points)
        before = {point.key: record_version(point.folder) for point in needed}
        if needed:
            with status_line(partial(stage_status, name, points, before)):
                left = self._queue(needed, before)
                for n, batch in enumerate(batches):
                    self._run([point for point in batch if point in left and point.needs_run])
                    later = [point for each in batches[n + 1 :] for point in each]
                    self._write_untrained([point for point in later if point in left])
                for point in left:  # the cause of a failure may have passed
                    if point.result and failed_by_environment(point.result):
                        self._run([point])
        results = [point.result for point in needed if point.result]
        failed = [each for each in results if each["status"] == "failed"]
        if self.is_awaited:
            self.has_failed |= any(each.get("fault_samples") is None for each in failed)
        print(f"{name}: {counts(points)}", flush=True)
        left = [point for point in points if point.is_unsettled]
        for point in left:
            point.refresh()  # to an earlier attempt, if it counts
        again = [point for point in left if point.is_unsettled]
        if again and self.is_awaited:
            reasons = [point.result["reason"] for point in again if point.result]
            why = f" ({reasons[0]})" if reasons else ""
            message = f"{len(again)} of {len(points)} points failed for environment reasons"
            tell(f"{message}{why}; the next sweep runs them again")
        return not left

    def _run(self, points: Points) -> None:
        if points:
            for point, result in zip(points, self._launch(points), strict=True):
                point.result = result
                if result is None:
                    point.refresh()

    def _write_untrained(self, points: Points) -> None:
        for write in self._write:
            if needed := to_run(points):
                write(needed)
                for point in needed:
                    point.refresh()

    def _queue(self, points: Points, before: Mapping[str, int | None]) -> list[StudyPoint]:
        """Run the points whose cluster has a queue, in jobs of this queue; return all others.

        `before`: the versions of their records, by key.
        """
        from paceline.study.submission import run_queued  # torch takes seconds

        queues = {point: point.point.cluster.submitted_to for point in points}
        queued = [point for point, queue in queues.items() if queue is not None]
        if queued:
            run_queued([point.point for point in queued])
            self.is_awaited = all(queue.wait for queue in queues.values() if queue is not None)
        for point in queued:
            is_new = record_version(point.folder) != before[point.key]
            point.refresh()
            if self.is_awaited:
                point.result = latest_result(point.folder) if is_new else None
        return [point for point in points if point not in queued]


def settle_partial_records(folder: Path) -> None:
    """Complete or remove the partial records that processes which have ended left behind.

    Raises SettingError if a complete one cannot be moved to its place.
    """
    for key, made in partial_records(folder):
        if not is_under_way(made):
            try:
                PartialRecord(folder / key).discard()
            except SettingError:
                if not is_under_way(made):  # else a process has begun to make it meanwhile
                    raise


@contextmanager
def one_at_a_time(folder: Path) -> Generator[None]:
    """Hold the lock of a study, so that only one sweep of it runs at a time.

    Waits while another process holds the lock. `folder`: folder of the study's records. Raises
    SettingError("study") if the folder cannot be written.
    """
    lock = Lock(folder / ".sweep.lock")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(patience=0)
    except Timeout:
        tell(f"another process is running {folder.name}; waiting for its end")
        lock.acquire(patience=-1)
    except OSError as error:
        raise SettingError("study", f"cannot write {folder}: {error.strerror or error}") from error
    try:
        yield
    finally:
        lock.release()


def tell_unfit(folders: Iterable[Path]) -> None:
    """Print which records are invalid, and why; the sweep replaces these records."""
    for folder in folders:
        if fault := fault_of(folder):
            tell(f"{folder} is invalid and counts as missing: {fault}")


def _warn_of_crowding(points: Points) -> None:
    processes = most_processes(point for point in points if point.config.sweep.jobs > 1)
    if processes > num_cores():
        message = f"{processes} processes at a time share {num_cores()} cores"
        tell(f"sweep.jobs: {message}, which lowers the throughput")


def _warn_of_no_effect(study: Study) -> None:
    """Warn of settings that have no effect in any point, and of GPUs that some do not use."""
    from paceline.record.without_effect import on_cpu, without_effect  # torch takes seconds

    rated = [point for point in study.points if point.has_rate]
    lines = [without_effect(point.point) for point in rated]
    for line in filter(None, dict.fromkeys(on_cpu(point.point) for point in rated)):
        tell(line)
    for line in lines[0] if lines else []:
        if all(line in each for each in lines):
            tell(line)
