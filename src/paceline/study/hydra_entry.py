"""Runs points (training runs): a single one, or all of a study."""

import sys
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra

from paceline.cluster.processes import preload
from paceline.errors import SettingError, tell
from paceline.record.data_digest import is_of_other_data
from paceline.record.mlflow import RecordLog, run_label
from paceline.record.point import Point
from paceline.record.point_config import PointConfig
from paceline.record.provenance import source_digest
from paceline.record.reading import fault_of, read_result
from paceline.record.record import partial_folder
from paceline.record.result import Result
from paceline.record.without_effect import on_cpu, without_effect
from paceline.study.collect import collect
from paceline.study.compose import composer, hydra_errors
from paceline.study.point_processes import Killed, processes_kept, run_points
from paceline.study.progress import points_table, result_line, run_status, status_line
from paceline.study.study_point import Points
from paceline.study.sweep import Write, checked_study, sweep
from paceline.study.tuning import put_trial


@contextmanager
def hydra_of(root: Path) -> Generator[Any]:
    """Yield Hydra with the configuration of `root`, which is the working directory."""
    folder = str((root / "conf").absolute())
    with initialize_config_dir(folder, job_name="paceline", version_base="1.3"):
        yield GlobalHydra.instance().hydra


def run(overrides: Sequence[str], root: Path) -> int:
    """Run the point that `overrides` describe; return 1 if it failed, else 0.

    Raises SettingError for an invalid setting. `root`: the working directory.
    """
    with composer(root) as compose_job:
        cfg = compose_job(overrides).cfg
    put_trial(cfg)
    config = PointConfig.of(cfg)
    log = RecordLog(config.folder.parent, config.measurement.mlflow, key=config.key)
    _, problem = _run(config, None, log)
    print(config.folder, flush=True)
    if log.failure:
        problem = f"measurement.mlflow.tracking_uri: {log.failure}"
    if problem:
        tell(problem)
    return 1 if problem else 0


def multirun(overrides: Sequence[str], root: Path, *write: Write) -> bool:
    """Run the points of the study that `experiments=...` names, then collect their records.

    If none is named, only run the points that `overrides` describe. Returns False if afterwards
    some points have no record (see `sweep`). Raises SettingError for an invalid setting of any
    point. `root`: the working directory. `write`: see `sweep`.
    """
    chosen = [each for each in overrides if each.startswith("experiments=")]
    name = chosen[-1].partition("=")[2] if chosen else None
    settings, numbers = [each for each in overrides if each not in chosen], count(1)

    def launch(points: Points) -> list[Result | None]:
        jobs = [(point.config, next(numbers)) for point in points]
        at_a_time = min(point.config.sweep.jobs for point in points)
        if at_a_time == 1:
            return [run_of_study(*each) for each in jobs]
        ended = run_points(run_of_study, jobs, at_a_time)
        for (_, number), end in zip(jobs, ended, strict=True):
            if isinstance(end, Killed):
                tell(f"point {number}: its process was {end.how}")
        return [None if isinstance(end, Killed) else end for end in ended]

    with hydra_errors("study"):
        study = checked_study(name, root, settings)
        with processes_kept():
            complete = sweep(study, launch, *write)
    if name is None:
        print(points_table(study.points))
        print(study.points[0].folder.parent.relative_to(study.root))
    elif any(point.result for point in study.points):
        collect(study)
    return complete


def run_of_study(config: PointConfig, number: int) -> Result | None:
    """Run one point of a study; return its result. `number`: its position in a sweep, from 1.

    Raises SystemExit for an invalid setting that is only found when the point runs.
    """
    try:
        return _run(config, number, nullcontext())[0]
    except SettingError as error:
        tell(str(error))
        sys.exit(2)


def _run(
    config: PointConfig, number: int | None, log: AbstractContextManager[object]
) -> tuple[Result | None, str]:
    """Run the point unless its record says that it need not run.

    Returns its result, and the reason why it failed, or "". `number`: position of the point in a
    multirun, from 1; None outside of a multirun. `log`: logs the record inside of its context.
    """
    result = read_result(config.folder)
    other = is_of_other_data(result, config.target("data"))
    if result is not None and not config.sweep.needs_run(result, source_digest(), other):
        Point.of_plain(config.values)  # a setting that is no part of the key may be wrong
        note = f"already there{_again(result, other)}"
        print(result_line(number, config, result, note), flush=True)
        with log:
            pass
    else:
        if number is None and (fault := fault_of(config.folder)):  # a sweep names them at once
            tell(f"{config.folder} does not fit: {fault}")
        point = Point.of(config)
        preload()
        from paceline.run.run_point import run_point  # torch, while the forkserver imports it

        if number is None:
            for line in filter(None, [on_cpu(point), *without_effect(point)]):
                tell(line)
        if point.cluster.submitted_to is not None:
            with log:
                return _queue(point)
        with log, _watch(point) if number is None else nullcontext():  # a sweep watches its points
            result = run_point(point, in_sweep=number is not None).result
        print(result_line(number, config, result, f"{result['wall_seconds']:.1f} s"), flush=True)
    return result, result["reason"] if result["status"] == "failed" else ""


def _again(result: Result, of_other_data: bool) -> str:
    """Return a hint how to replace a failed or stale record, or ""."""
    if result["status"] == "failed":
        return "; sweep.rerun=failed runs it again"
    causes = ["made by another version of the code"] * (result["source_digest"] != source_digest())
    causes += ["of data that have changed since"] * of_other_data
    return f", {' and '.join(causes)}; sweep.rerun=stale runs it again" if causes else ""


def _queue(point: Point) -> tuple[Result | None, str]:
    """Run the point in a job of a queue; return its result, and why it failed, or ""."""
    from paceline.study.submission import run_queued

    with _watch(point):
        problems = run_queued([point])
    return read_result(point.config.folder), "; ".join(problems)


def _watch(point: Point) -> AbstractContextManager[None]:
    folder = partial_folder(point.config.folder)
    return status_line(partial(run_status, run_label(point.config.values), point.kind, folder))
