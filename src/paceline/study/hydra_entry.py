"""Entry of Hydra: one job is one point, alone or in a multirun."""

import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from paceline.cluster.processes import preload
from paceline.errors import SettingError
from paceline.record.ownership import partial_folder
from paceline.record.point_config import PointConfig
from paceline.record.provenance import source_digest
from paceline.record.reading import fault_of, read_result
from paceline.record.record import Result
from paceline.record.tracking.log import log, prepare_log
from paceline.record.tracking.run_label import run_label
from paceline.study.hydra_error import as_setting_error, check_groups
from paceline.study.result_line import result_line
from paceline.study.run_watch import RunWatch
from paceline.study.status_line import StatusLine
from paceline.study.tuned_rate import Rates

if TYPE_CHECKING:
    from paceline.record.point import Point


def run_hydra(arguments: Sequence[str], root: Path) -> None:
    """Run Hydra's command line with the configuration of `root`, the working directory.

    Raises Hydra's errors, and SettingError for a group that is no file; a point that cannot be run
    ends the process, see `job`.
    """
    check_groups(arguments)
    os.environ["HYDRA_FULL_ERROR"] = "1"
    sys.argv = ["paceline train", *arguments]
    hydra.main(version_base="1.3", config_path=str(root / "conf"), config_name="config")(job)()


def multirun(overrides: list[str]) -> None:
    """Run all points of a study through Hydra's launcher; the working directory is its root."""
    try:
        run_hydra(["--multirun", *overrides], Path.cwd())
    except SystemExit as left:
        if left.code != 1:  # the process of a point was killed; the others have run
            raise


def job(cfg: DictConfig) -> float | None:
    """Run one point, unless its record is complete, and print how it ended.

    Returns its validation top-1, by which Hydra's sweepers optimize; None if it failed.
    Raises SystemExit, since Hydra prints a line of its own about other exceptions: 2 for an invalid
    setting, and outside a multirun 1 for a failed point.
    """
    try:
        if not Rates(Path()).set_rate(cfg):
            message = f"tuned, but not all of its trials have run: paceline sweep {cfg.study}"
            raise SettingError("training.rate", message)
        config = PointConfig.of(cfg)
        multi = HydraConfig.get().mode == RunMode.MULTIRUN
        problem = _run(config, HydraConfig.get().job.num + 1 if multi else None)
    except (SettingError, OmegaConfBaseException) as error:
        bad = error if isinstance(error, SettingError) else as_setting_error(error, "train")
        _leave(str(bad), 2)
    if not multi:
        print(config.folder, flush=True)
    if problem and not multi:
        _leave(problem, 1)
    return (read_result(config.folder) or {}).get("top1")


def _run(config: PointConfig, number: int | None) -> str:
    """Run the point, unless its record is complete; return the reason of a failure, or "".

    `number`: position of the point in a multirun, from 1; None outside one.
    """
    result = read_result(config.folder)
    if result is not None and not config.sweep.needs_run(result, source_digest()):
        print(result_line(number, config, result, f"already there{_again(result)}"), flush=True)
        mlflow = config.measurement.mlflow
        unlogged = log(config.folder, mlflow) if number is None else None  # a sweep logs the rest
    else:
        if number is None and (fault := fault_of(config.folder)):  # a sweep names them at once
            print(f"paceline: {config.folder} does not fit: {fault}", file=sys.stderr)
        preload()
        from paceline.record.point import Point  # torch, while the forkserver imports it
        from paceline.run.run_point import run_point
        from paceline.study.queue.submission import has_queue

        point = Point.of(config)
        if number == 1:
            prepare_log(point.measurement.mlflow)
        if has_queue(point):
            return _queue(point)
        with _watch(point) if number is None else nullcontext():  # a sweep watches its points
            outcome = run_point(point, in_sweep=number is not None)
        result, unlogged = outcome.result, outcome.unlogged
        print(result_line(number, config, result, f"{result['wall_seconds']:.1f} s"), flush=True)
    if unlogged:
        problem = f"measurement.mlflow.tracking_uri: {unlogged}"
        if number is not None:
            print(f"paceline: {problem}", file=sys.stderr, flush=True)
        return problem
    return result["reason"] if result["status"] == "failed" else ""


def _again(result: Result) -> str:
    """Return what to set for a point to run again whose record asks for it."""
    if result["status"] == "failed":
        return "; sweep.rerun=failed runs it again"
    stale = result["source_digest"] != source_digest()
    return ", of other code; sweep.rerun=stale runs it again" if stale else ""


def _queue(point: "Point") -> str:
    """Let the point run in a job; return the reason of a failure, or ""."""
    from paceline.study.queued_points import run_queued

    prepare_log(point.measurement.mlflow)
    with _watch(point):
        problems = run_queued([point])
    return "; ".join(problems)


def _watch(point: "Point") -> StatusLine:
    config = point.config
    name = run_label(config.values)
    return StatusLine(RunWatch(name, point.kind, partial_folder(config.folder)).status)


def _leave(message: str, code: int) -> NoReturn:
    print(f"paceline: {message}", file=sys.stderr, flush=True)
    sys.exit(code)
