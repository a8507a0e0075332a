"""Runs points (training runs) as jobs of Hydra: a single one, or many in a multirun."""

import multiprocessing
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, cast

from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from paceline.cluster.processes import preload
from paceline.errors import SettingError, tell
from paceline.record.data_digest import is_of_other_data
from paceline.record.label import run_label
from paceline.record.mlflow import RecordLog
from paceline.record.point import Point
from paceline.record.point_config import PointConfig
from paceline.record.provenance import source_digest
from paceline.record.reading import chosen_attempt, fault_of, latest_result, read_result
from paceline.record.record import attempts, partial_folder
from paceline.record.result import Result
from paceline.record.without_effect import on_cpu, without_effect
from paceline.study.collect import collect
from paceline.study.compose import CONFIG, check_groups, composer, hydra_errors
from paceline.study.other_sweepers import tried
from paceline.study.progress import result_line, run_status, status_line
from paceline.study.slurm_jobs import require_jobs
from paceline.study.tuning import put_trial

if TYPE_CHECKING:
    from paceline.study.study_points import Study


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
    config, log = _config_and_log(cfg)
    result, problem = _run(config, None, log)
    is_good = result is not None and result["status"] != "failed"
    print(chosen_attempt(config.folder) if is_good else attempts(config.folder)[0], flush=True)
    if problem := _not_logged(log) or problem:
        tell(problem)
    return 1 if problem else 0


class Multirun(NamedTuple):
    """What a multirun has done.

    `study`: its points; None if another sweeper than Paceline's chose points of a study that has a
    file. `is_complete`: False if some points have no record. `best`: the best trial, in words, of a
    sweeper that tells it.
    """

    study: "Study | None"
    is_complete: bool
    best: str = ""


def multirun(overrides: Sequence[str], root: Path) -> Multirun:
    """Run all points that `overrides` describe, by Hydra's sweeper and launcher.

    Raises Hydra's errors, and SettingError for an invalid setting of any point.
    """
    check_groups(overrides)
    began = time.time() - 1  # clocks of files are a little behind
    with hydra_of(root) as hydra:
        returned = hydra.multirun(CONFIG, job, [*overrides, "hydra.mode=MULTIRUN"])
    if isinstance(returned, tuple):  # of Paceline's sweeper
        return Multirun(*returned)
    study, best = tried(overrides, root, began)
    if study is not None:
        collect(study)
    return Multirun(study, True, best)


def job(cfg: DictConfig) -> float | None:
    """Run one point of a multirun, unless its record says that it need not run.

    Returns the point's validation top-1, which Hydra's sweepers can optimize; None if the point
    failed. Raises SystemExit for an invalid setting, because Hydra would print any other exception.
    """
    try:
        with hydra_errors("train"):
            cfg.grids = None  # they describe other points of the study
            config, log = _config_and_log(cfg)
            result, _ = _run(config, HydraConfig.get().job.num + 1, log)
    except SettingError as error:
        _leave(error)
    if problem := _not_logged(log):
        tell(problem)
    return result["top1"] if result else None


def _config_and_log(cfg: DictConfig) -> tuple[PointConfig, RecordLog]:
    """Return the settings of a point that belongs to no study, and the log of its record."""
    put_trial(cfg)
    config = PointConfig.of(cfg)
    return config, RecordLog(config.folder.parent, config.measurement.mlflow, key=config.key)


def _not_logged(log: RecordLog) -> str:
    return f"measurement.mlflow.tracking_uri: {log.failure}" if log.failure else ""


def job_of_study(cfg: DictConfig) -> Result | None:
    """Run one point of a study, whose settings are composed already; return its result.

    Raises SystemExit for an invalid setting that is only found when the point runs.
    """
    plain = cast("dict[str, Any]", OmegaConf.to_container(cfg))
    try:
        return _run(PointConfig(plain), HydraConfig.get().job.num + 1, None)[0]
    except SettingError as error:
        _leave(error)


def _run(
    config: PointConfig, number: int | None, log: RecordLog | None
) -> tuple[Result | None, str]:
    """Run the point unless its record says that it need not run.

    Returns its result, and the reason why it failed, or "". `number`: position of the point in a
    multirun, from 1; None outside of a multirun. `log`: logs the record; None if the sweep does.
    """
    result = read_result(config.folder)
    other = is_of_other_data(result, config.target("data"), *config.files_of_model)
    if result is not None and not config.sweep.needs_run(result, source_digest(), other):
        Point.unchecked(config)  # a setting that is no part of the key may be wrong
        note = f"already there{_again(result, other)}"
        print(result_line(number, config, result, note), flush=True)
        if log is not None:
            log.catch_up()
    else:
        if number is None and (fault := fault_of(config.folder)):  # a sweep names them at once
            tell(f"{config.folder} does not fit: {fault}")
        if multiprocessing.get_start_method(allow_none=True) == "loky":
            # set in the processes of joblib's launcher, and unknown to those that they start
            multiprocessing.set_start_method("spawn", force=True)
        point = Point.of(config)
        if point.cluster.submitted_to is not None:
            require_jobs(point.study)
        point.require_data()
        preload()
        from paceline.run.run_point import run_point  # torch, while the forkserver imports it

        if number is None:
            for line in filter(None, [on_cpu(point), *without_effect(point)]):
                tell(line)
        if point.cluster.submitted_to is not None:
            with log or nullcontext():
                return _queue(point)
        with (
            log or nullcontext(),
            _watch(point) if number is None else nullcontext(),
        ):  # a sweep watches its points
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
    return latest_result(point.config.folder), "; ".join(problems)


def _watch(point: Point) -> AbstractContextManager[None]:
    folder = partial_folder(point.config.folder)
    return status_line(partial(run_status, run_label(point.config.values), point.kind, folder))


def _leave(error: SettingError) -> NoReturn:
    tell(str(error))
    sys.exit(2)
