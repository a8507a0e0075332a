"""Runs one point (one training run), from its settings to its record."""

import json
import shutil
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from paceline.clock.reports import ServerReport
from paceline.cluster.local import LocalCluster
from paceline.cluster.shaped_nodes import RECORD as FAULT
from paceline.cluster.supervisor import LostWorker, ProcessFailure, Task
from paceline.data.image_set import AbstractImageData
from paceline.data.order import check_share
from paceline.errors import OF_MACHINE, SettingError, printable, said_of_environment, tell
from paceline.record import provenance
from paceline.record.checkpoint import begin, has_checkpoint, latest
from paceline.record.data_digest import data_digest, look_again
from paceline.record.observed import Observed, TrainingReport
from paceline.record.point import Point
from paceline.record.record import PartialRecord
from paceline.record.result import NUMBERS, Result
from paceline.record.result import result as result_of
from paceline.record.rows import POINT_TABLES
from paceline.record.target import Target
from paceline.run.asked import asked_by_signals
from paceline.run.budget import budget_of
from paceline.run.machine_load import MachineLoad, memory_kills

PROCESS = "paceline.run.training_process:run"  # not imported here: Lightning takes seconds
_SET_SECONDS = 1.0  # by which a clock was set; less may be how it is kept right


@dataclass(frozen=True)
class Outcome:
    """Outcome of a run.

    `folder`: folder of its attempt in the record. `result`: content of the record's result.json.
    """

    folder: Path
    result: Result


def run_point(point: Point, *, in_sweep: bool = False) -> Outcome:
    """Train the point and write its record; the failure of a process is a recorded result.

    Raises SettingError, and writes no record, if a setting is invalid. A sweep differs in two
    ways: A point whose process was killed resumes at its latest checkpoint. An invalid setting that
    only the processes can detect is recorded as a failure.
    """
    point.check_packages()
    if not in_sweep:
        check_length(point)
    prepare_data(point.data)
    look_again()
    # kept, so that workers need not read the bytes again
    data = data_digest(point.data, *point.config.files_of_model)
    partial = PartialRecord(point.config.folder)
    try:
        partial.write_config(point.config.values)
        _begin_checkpoints(point, partial.folder, data)
        result = _train(point, partial, in_sweep)
        return Outcome(partial.complete(result), result)
    except BaseException:
        partial.discard()
        raise


def check_length(point: Point) -> None:
    """Raise SettingError for a run that is too short, if its length is known before data are read.

    This is so if `training.samples` is set, or for a data set that declares its number of images.
    """
    data = point.data.build_as(AbstractImageData) if point.data.is_ours else None
    num_train = (data and data.num_training_images) or 0
    if num_train:
        share = num_train // point.workers
        check_share(point.workers, point.batch_size, share, num_train)
    if num_train or point.training.samples:
        budget_of(point, num_train)


def _begin_checkpoints(point: Point, folder: Path, data: str | None) -> None:
    """Prepare the folder of checkpoints of a run on data with this digest.

    Prints that the point resumes at a checkpoint, or why the checkpoint there cannot be used.
    """
    key = point.config.key
    if point.training.checkpoint_seconds is None and not has_checkpoint(folder):
        return
    try:
        if checkpoint := begin(folder, key, require_plain, data):
            print(f"{key}: resumed at {checkpoint.samples:,} images", flush=True)
    except (ValueError, OSError, TypeError, KeyError) as reason:
        message = f"paceline: the checkpoint of {key} is ignored: {reason}"
        print(message, file=sys.stderr, flush=True)


def require_plain(path: Path) -> None:
    """Raise ValueError for a file that holds anything but tensors and plain values."""
    from torch.serialization import get_unsafe_globals_in_checkpoint

    try:
        others = get_unsafe_globals_in_checkpoint(path)
    except Exception as error:  # on arbitrary bytes torch raises whatever it stumbles over
        raise ValueError(f"{path.name} is not a file of torch") from error
    if others:
        raise ValueError(f"{path.name} holds {others[0]}, and not only tensors and plain values")


def prepare_data(data: Target) -> AbstractImageData | None:
    """Check that the data are complete, or download them, and return them.

    Returns None for a user's LightningDataModule, which the workers prepare.
    """
    if not data.is_ours:
        return None
    images = data.build()
    images.prepare()
    return images


def _train(point: Point, partial: PartialRecord, in_sweep: bool) -> Result:
    started, load = _Moment(time.time(), time.monotonic()), MachineLoad()
    task = Task(
        PROCESS,
        (point, partial.folder),
        *point.num_processes,
        partial.folder / "log",
        point.sharding.shards,
        point.cluster.timeout_seconds,
        partial.folder / "progress.csv",
        provenance.source_digest(),
    )
    try:
        with asked_by_signals(point, partial.folder):
            returned = _run(point, partial.folder, task, again=in_sweep)
    except (ProcessFailure, SettingError) as failure:
        if isinstance(failure, SettingError) and not in_sweep:
            raise
        fault = _fault(partial.folder)
        for table in POINT_TABLES:
            partial.write_table(table.name, table.columns, [])
        environment = isinstance(failure, ProcessFailure) and failure.environment and not fault
        failed = {"status": "failed", "reason": printable(str(failure)), "environment": environment}
        failed |= dict.fromkeys(each.name for each in NUMBERS)
        return {**_about(point, started, None), **failed, **fault}
    others = load.of_others(sum(point.num_processes) * point.cluster.threads_per_worker)
    fault = _fault(partial.folder)
    shutil.rmtree(task.log_folder, ignore_errors=True)  # of a failure they are kept
    observed = observed_by(point, returned)
    for caution in {each: None for report in observed.training for each in report.cautions}:
        tell(caution)
    for table in POINT_TABLES:
        partial.write_table(table.name, table.columns, table.rows(observed))
    about = _about(point, started, observed.training_started)
    if point.kind == "measured" and isinstance(point.cluster, LocalCluster):
        about["load_of_others"] = others  # elsewhere, not all processes are below this one
    return {**about, **result_of(observed), **fault}


def _run(point: Point, folder: Path, task: Task, *, again: bool) -> list[Any]:
    """Run the processes of a point and return what each of them returns.

    With `again`, if a process is killed, all processes are started again from the latest
    checkpoint, provided that it was written since the last start. Any other failure of a process
    raises ProcessFailure.
    """
    begun, kills = -1, memory_kills()
    while True:
        try:
            return point.cluster.run(task)
        except OF_MACHINE as error:  # of the launcher's own process
            named = f"{type(error).__name__}: {error}"
            reason = said_of_environment(error) or " ".join(named.split())
            raise ProcessFailure(reason, environment=True) from error
        except ProcessFailure as failure:
            if failure.environment and memory_kills() > kills:
                message = f"{failure}; the kernel killed a process, as memory ran out"
                failure = ProcessFailure(message, environment=True)
            found = latest(folder)
            killed = ": killed by" in str(failure)
            if not (again and killed) or found is None or found.samples <= begun:
                raise failure from None
            begun = found.samples
            message = f"{point.config.key}: {failure}; resumed at {begun:,} images"
            print(message, file=sys.stderr, flush=True)


def _fault(folder: Path) -> Result:
    """Return the samples before an injected fault and the seconds after it; {} without one.

    The seconds are None if the machine was started anew since.
    """
    if not (folder / FAULT).is_file():
        return {}
    struck = json.loads((folder / FAULT).read_text())
    seconds = time.monotonic() - struck["at"]
    return {"fault_samples": struck["samples"], "fault_seconds": seconds if seconds >= 0 else None}


def observed_by(point: Point, returned: list[Any]) -> Observed:
    return Observed(
        training=[each for each in returned if isinstance(each, TrainingReport)],
        servers=[each for each in returned if isinstance(each, ServerReport)],
        lost=[each for each in returned if isinstance(each, LostWorker)],
        scheme=point.scheme,
        batch_size=point.batch_size,
        warmup_fraction=point.measurement.warmup_fraction,
        is_scored=point.measurement.evaluations > 0,
    )


class _Moment(NamedTuple):
    """Moment on the clock of the machine [seconds since 1970], and on one that nobody sets."""

    clock: float
    steady: float


def _about(point: Point, started: _Moment, training_started: float | None) -> dict[str, Any]:
    """Return the fields that all results have, also those of failed points.

    `training_started`: on the clock of the worker's machine, or None. The seconds until then are
    unknown if the clock of this machine was set meanwhile.
    """
    wall_seconds = time.monotonic() - started.steady
    is_set = abs(time.time() - started.clock - wall_seconds) > _SET_SECONDS
    launched = None if is_set or training_started is None else training_started - started.clock
    return {
        "status": "",
        "reason": "",
        "kind": point.kind,
        "study": point.study,
        "key": point.config.key,
        **point.config.names,
        "workers": point.workers,
        "servers": point.scheme.servers,
        "batch_size": point.batch_size,
        "seed": point.seed,
        "started": datetime.fromtimestamp(started.clock, UTC).isoformat(timespec="seconds"),
        "wall_seconds": wall_seconds,
        "launch_seconds": launched,
        "jobs": point.sweep.jobs,
        "accelerator": point.device,
        **_gpus(point),
        **provenance.job(),
        **provenance.provenance(),
    }


def _gpus(point: Point) -> Result:
    """Return how real workers and servers use GPUs; {} if they use none."""
    if point.device == "cpu" or point.kind == "virtual":
        return {}
    found: Result = {"workers_per_accelerator": point.cluster.workers_per_accelerator}
    if point.scheme.servers:
        found["server_device"] = point.server_device
    return found
