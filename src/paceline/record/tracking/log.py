"""Logs points and studies to MLflow: progress while a point runs, and its record at the end.

Each point and each study has a run in MLflow. A file in the folder of a record, or in the folder of
all records of a study, names this run. A study has an experiment of its own, which lists all runs.
"""

import csv
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from paceline.data.placement import Placement
from paceline.record.key import declared_settings, without_retired
from paceline.record.measurement import MLflow
from paceline.record.numbers import NUMBERS
from paceline.record.point_config import PointConfig, flat_settings
from paceline.record.tracking.compared_runs import (
    IMAGES_PER_SECOND,
    TOP1,
    comparison_link,
    experiment_tags,
)
from paceline.record.tracking.mlflow_log import (
    TIMEOUT,
    KnownRun,
    LogError,
    PointLog,
    Row,
    flat_params,
    is_lost,
    prepare_store,
    tag_experiment,
)

NOTE = "mlflow.note.content"  # tag: text that MLflow shows beside a run or an experiment
MARKER = "mlflow.json"  # file in a record's folder, which names its run
DEFAULT_AXES = ("scheme", "workers", "batch_size", "seed")  # of a run of no study
_WORDS = {  # for settings whose name and value do not make a readable text
    "scheme": "{}",
    "workers": "{} workers",
    "batch_size": "batch {}",
    "training.rate": "{}",
    "cluster.slow_workers": "slow {}",
}
_TAGS = ("study", "key", "scheme", "workers", "kind", "status", "commit")
_FILES = ("config.yaml", "result.json", "curve.csv")
_FIRST = {"test_top1": TOP1, "images_per_second": IMAGES_PER_SECOND}  # what users compare
_SYSTEM = ("wall_seconds", "launch_seconds")  # shown beside the numbers of bytes
_PERIOD = 1.0  # s between two looks at the progress of a point
_PATIENCE = 10.0  # s for which a run waits at its end for a store that does not answer
_PATIENCE_WITH_A_LOST_STORE = 0.5


def prepare_log(mlflow: MLflow) -> None:
    """Create the MLflow store if it is missing. Raises SettingError if it cannot be used."""
    if mlflow.tracking_uri is not None:
        prepare_store(mlflow.tracking_uri, mlflow.experiment)


def log(folder: Path, mlflow: MLflow, timeout: float = TIMEOUT) -> str | None:
    """Log a record to MLflow unless it was logged before. Returns the reason of a failure, or None.

    `timeout`: seconds for which each write is tried again.
    """
    uri = mlflow.tracking_uri
    return uri and _failure(lambda: log_record(folder, uri, mlflow.experiment, timeout))


def log_record(folder: Path, tracking_uri: str, experiment: str, timeout: float = TIMEOUT) -> bool:
    """Log the complete record in `folder`, to the point's run in MLflow if it exists already.

    Returns False if the record was logged before. After a LogError, it may be called again.
    """
    run = KnownRun.read(folder / MARKER, tracking_uri)
    log = PointLog.known(run, timeout=timeout)
    if run and log and run.complete:
        return False
    result = json.loads((folder / "result.json").read_text())
    config = without_retired(yaml.safe_load((folder / "config.yaml").read_text()))
    name, about = _run_about(config, folder, tracking_uri)
    tags = about | {name: str(result[name]) for name in _TAGS}
    if log is None:
        started = datetime.fromisoformat(result["started"]).timestamp()
        log = PointLog.begin(tracking_uri, experiment, name, tags, started, timeout=timeout)
    KnownRun(log.run_id, tracking_uri).write(folder / MARKER)
    log.describe(_params(config), tags)
    log.log([*_live_rows(folder), *_grouped("curve", _table(folder / "curve.csv")), _final(result)])
    log.describe_data(config["names"]["data"], _of_data(config))
    log.add_files(folder / name for name in _FILES)
    log.finish("FINISHED" if result["status"] == "finished" else "FAILED", result["wall_seconds"])
    KnownRun(log.run_id, tracking_uri, complete=True).write(folder / MARKER)
    return True


def end_lost_run(folder: Path, tracking_uri: str) -> None:
    """Mark the run of the partial record in `folder` as killed. Raises LogError."""
    log = PointLog.known(KnownRun.read(folder / MARKER, tracking_uri), timeout=0)
    if log is not None:
        log.finish("KILLED", None)


def run_label(config: Mapping[str, Any], axes: Sequence[str] = DEFAULT_AXES) -> str:
    """Describe a point by its values of `axes` (dotted names), and by its seed, which comes last.

    For example `gossip 16 workers tuned seed 3`. Settings that are null are left out. For a trial
    of a hyperparameter search, the tried values replace `training.rate`.
    """
    values, trial = {**flat_settings(config), **config.get("names", {})}, config.get("trial")
    last = ["training.rate"] if "training.rate" in axes and not trial else []
    named = [*(name for name in axes if name not in ("seed", "training.rate")), *last]
    parts = [_part(name, values[name]) for name in named if values.get(name) is not None]
    if trial:
        tried = [f"{name} {trial[name]:.3g}" for name in ("lr", "momentum") if trial.get(name)]
        parts += ["tuning", *tried]
    return " ".join([*parts, f"seed {config['seed']}"])


class ProgressFollower:
    """Context manager in which a thread logs the rows that a worker appends to `progress.csv`.

    `folder`: folder of the partial record. The context must end before the record is completed;
    `log_record` then adds all rows that are missing to the same run in MLflow. If the context ends
    by an exception, the run is marked as killed. Without a `tracking_uri`, the context does
    nothing. `answers`: False if the store did not answer the last request.
    """

    def __init__(self, folder: Path, config: PointConfig) -> None:
        self._folder, self._config, self._mlflow = folder, config, config.measurement.mlflow
        self.answers = True
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="mlflow", daemon=True)

    def __enter__(self) -> "ProgressFollower":
        if self._mlflow.tracking_uri is not None:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stopped.set()
        if self._thread.is_alive():  # if it does not end in time, it ends with the process
            self._thread.join(_PATIENCE if self.answers else _PATIENCE_WITH_A_LOST_STORE)
        if kind is not None and self._mlflow.tracking_uri is not None:
            with suppress(LogError):  # MLflow then shows the run as running
                end_lost_run(self._folder, self._mlflow.tracking_uri)

    def _follow(self) -> None:
        yield_to_workers()
        started, log, num_logged = time.time(), None, 0
        while not self._stopped.wait(_PERIOD):
            try:
                log = log or self._begin(started)
                rows = _live_rows(self._folder, num_logged)
                log.log(rows)
                num_logged += len(rows)
                self.answers = True
            except LogError as error:  # rows stay in the file for the next try, or log_record
                self.answers = error.answered
            except OSError:
                continue

    def _begin(self, started: float) -> PointLog:
        config, uri = self._config, self._mlflow.tracking_uri
        assert uri is not None
        name, about = _run_about(config.values, self._folder, uri)
        tags = about | {
            "study": config.study,
            "key": config.key,
            "scheme": config.names["scheme"],
            "workers": str(config.values["workers"]),
            "status": "running",
        }
        log = PointLog.begin(uri, self._mlflow.experiment, name, tags, started, timeout=0)
        KnownRun(log.run_id, uri).write(self._folder / MARKER)
        log.describe(_params(config.values), {})
        return log


def yield_to_workers() -> None:
    """Give this thread the lowest priority; only Linux has a priority for each thread."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)


def study_run(folder: Path, tracking_uri: str | None = None) -> KnownRun | None:
    """Return the run in MLflow of the study whose records are in `folder`, or None.

    `tracking_uri`: store that must have the run; None for any store.
    """
    return KnownRun.read(_named_in(folder), tracking_uri)


def begin_study_run(
    folder: Path, mlflow: MLflow, axes: Sequence[str], tags: Mapping[str, str]
) -> str | None:
    """Begin the run of a study in MLflow, or continue an earlier one.

    The experiment gets a saved view that compares the study's runs. Returns the reason of a
    failure, or None.
    """

    def begin(uri: str) -> None:
        log = PointLog.known(study_run(folder, uri))
        if log is not None:
            log.go_on()
        else:
            name = f"{folder.name} {_experiment()}".strip()
            log = PointLog.begin(uri, mlflow.experiment, name, tags, time.time())
        log.describe({}, tags)
        tag_experiment(uri, mlflow.experiment, experiment_tags(axes, tags.get(NOTE)))
        KnownRun(log.run_id, uri, axes=list(axes)).write(_named_in(folder))

    uri = mlflow.tracking_uri
    return uri and _failure(lambda: begin(uri))


def end_study_run(folder: Path, mlflow: MLflow, status: str, tags: Mapping[str, str]) -> str | None:
    """End the run of a study in MLflow with a status (FINISHED, FAILED or KILLED) and `tags`.

    Prints where MLflow compares the runs of a finished study. Returns the reason of a failure, or
    None.
    """
    run = study_run(folder, mlflow.tracking_uri)
    if run is None:
        return None

    def end() -> None:
        log = PointLog(run.tracking_uri, run.run_id)
        log.describe({}, tags)
        log.finish(status, None)
        if status == "FINISHED":
            print(f"runs compared: {comparison_link(run.tracking_uri, log.experiment_id)}")

    return _failure(end)


def log_study_files(folder: Path, files: Sequence[Path]) -> str | None:
    """Add files to the run in MLflow of the study whose records are in `folder`, if there is one.

    Returns the reason of a failure, or None.
    """
    run = study_run(folder)
    if run is None:
        return None
    if is_lost(run.tracking_uri):
        return f"{', '.join(each.name for each in files)} not logged: no {run.tracking_uri}"
    return _failure(lambda: PointLog(run.tracking_uri, run.run_id, timeout=0).add_files(files))


def _failure(write: Callable[[], object]) -> str | None:
    try:
        write()
    except LogError as error:
        return str(error)
    return None


def _named_in(folder: Path) -> Path:
    """Return the file that names the run of a study; each DVC experiment has a run of its own."""
    return folder / f"mlflow_parent{_experiment() and '_'}{_experiment()}.json"


def _experiment() -> str:
    return os.environ.get("DVC_EXP_NAME", "")


def _run_about(
    config: Mapping[str, Any], folder: Path, tracking_uri: str
) -> tuple[str, dict[str, str]]:
    """Return the name of a point's run, and the tags that link it to its study."""
    parent = study_run(folder.parent, tracking_uri)
    name = run_label(config, parent.axes) if parent else run_label(config)
    tags = {"tuning": "true" if config.get("trial") else "false"}
    return name, tags | ({"study_run": parent.run_id} if parent else {})


def _params(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings as texts; a group such as `scheme` is the name of its file in conf/."""
    return {n.removeprefix("names."): text for n, text in flat_params(config).items()}


def _part(name: str, value: Any) -> str:
    if (name, value) == ("workers", 1):
        return "1 worker"
    return _WORDS.get(name, name.rpartition(".")[2].replace("_", " ") + " {}").format(value)


def _live_rows(folder: Path, first: int = 0) -> list[Row]:
    return list(_grouped("live", _table(folder / "progress.csv", first)))


def _grouped(group: str, rows: Iterable[Row]) -> Iterator[Row]:
    """Yield the rows with `group/` before the names of their metrics.

    The metric `group/seconds` repeats the seconds of the row.
    """
    for row in rows:
        metrics = {f"{group}/{name}": row[name] for name in row if name != "samples"}
        yield {"samples": row["samples"], "seconds": row["seconds"], **metrics}


def _final(result: Mapping[str, Any]) -> Row:
    """Return the numbers of `result.json` as metrics `final/...`, `system/...`, or as in _FIRST."""
    units: dict[str, str] = dict.fromkeys(_SYSTEM, "bytes")
    units |= {number.name: number.unit for number in NUMBERS}
    numbers = {
        _FIRST.get(name, f"{'system' if unit == 'bytes' else 'final'}/{name}"): result[name]
        for name, unit in units.items()
        if isinstance(result.get(name), int | float)
    }
    return {"samples": 0, "seconds": 0.0} | numbers


def _of_data(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that determine the samples of a data set.

    Settings that say where and how the samples are stored are left out.
    """
    places = ("root", *declared_settings(Placement))
    return {name: value for name, value in config["data"].items() if name not in places}


def _table(path: Path, first: int = 0) -> Iterator[Row]:
    """Yield the complete rows of a CSV file from row `first` on; none if there is no file."""
    text = path.read_text() if path.exists() else ""
    lines = text[: text.rfind("\n") + 1].splitlines()  # a worker may be in the middle of a line
    for row in csv.DictReader([*lines[:1], *lines[1 + first :]]):
        yield {name: float(cell) if cell else None for name, cell in row.items()}
