"""Copy of a record on disk in MLflow, made at the end of a run or after an outage."""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from paceline.data.placement import Placement
from paceline.record.key import declared_settings
from paceline.record.measurement import MLflow
from paceline.record.numbers import NUMBERS
from paceline.record.tracking.mlflow_log import (
    TIMEOUT,
    KnownRun,
    LogError,
    PointLog,
    Row,
    flat_params,
    name_run,
    named_run,
)
from paceline.record.tracking.mlflow_store import prepare_store
from paceline.record.tracking.run_label import run_label
from paceline.record.tracking.study_run import study_run

MARKER = "mlflow.json"  # file in a record's folder, which names its run
_TAGS = ("study", "key", "scheme", "workers", "kind", "status", "commit")
_FILES = ("config.yaml", "result.json", "curve.csv")
_SYSTEM = ("wall_seconds", "launch_seconds")  # shown beside the numbers of bytes
_STATUS = {"finished": "FINISHED", "diverged": "FAILED", "failed": "FAILED"}


def prepare_log(mlflow: MLflow) -> None:
    """Create the store that runs are logged to. Raises SettingError if it cannot be used."""
    if mlflow.tracking_uri is not None:
        prepare_store(mlflow.tracking_uri, mlflow.experiment)


def log(folder: Path, mlflow: MLflow, timeout: float = TIMEOUT) -> str | None:
    """Log the record to MLflow, unless it is there. Returns the reason of a failure, or None.

    `timeout`: seconds for which each write is tried again.
    """
    if mlflow.tracking_uri is None:
        return None
    try:
        log_record(folder, mlflow.tracking_uri, mlflow.experiment, timeout)
    except LogError as error:
        return str(error)
    return None


def log_record(folder: Path, tracking_uri: str, experiment: str, timeout: float = TIMEOUT) -> bool:
    """Log the complete record in `folder` unless MLflow has it; continue a run begun live.

    Returns False if there was nothing to do. Raises LogError, after which it can be called again.
    """
    run = named_run(folder / MARKER, tracking_uri)
    log = PointLog.known(run, timeout=timeout)
    if run and log and run.complete:
        return False
    result = json.loads((folder / "result.json").read_text())
    config = yaml.safe_load((folder / "config.yaml").read_text())
    name, about = run_about(config, folder, tracking_uri)
    tags = about | {name: str(result[name]) for name in _TAGS}
    if log is None:
        started = datetime.fromisoformat(result["started"]).timestamp()
        log = PointLog.begin(tracking_uri, experiment, name, tags, started, timeout=timeout)
    name_record(folder, tracking_uri, log.run_id)
    log.describe(flat_params(config), tags)
    log.log([*live_rows(folder), *_grouped("curve", _table(folder / "curve.csv")), _final(result)])
    log.describe_data(config["names"]["data"], _of_data(config))
    log.add_files(folder / name for name in _FILES)
    log.finish(_STATUS[result["status"]], result["wall_seconds"])
    name_record(folder, tracking_uri, log.run_id, complete=True)
    return True


def end_lost_run(folder: Path, tracking_uri: str) -> None:
    """Mark as killed the run that the partial record in `folder` began live. Raises LogError."""
    log = PointLog.known(named_run(folder / MARKER, tracking_uri), timeout=0)
    if log is not None:
        log.finish("KILLED", None)


def run_about(
    config: Mapping[str, Any], folder: Path, tracking_uri: str
) -> tuple[str, dict[str, str]]:
    """Return the name of a point's run, and the tags that its settings and its study decide.

    `folder`: its record, partial or not.
    """
    parent = study_run(folder.parent, tracking_uri)
    name = run_label(config, parent.axes) if parent else run_label(config)
    tags = {"tuning": "true" if config.get("trial") else "false"}
    return name, tags | ({"mlflow.parentRunId": parent.run_id} if parent else {})


def live_rows(folder: Path, first: int = 0) -> list[Row]:
    """Return the present rows of `progress.csv` from row `first` on; metrics become `live/...`."""
    return list(_grouped("live", _table(folder / "progress.csv", first)))


def name_record(folder: Path, tracking_uri: str, run_id: str, *, complete: bool = False) -> None:
    """Note in `folder` the run that belongs to its record. Raises LogError."""
    name_run(folder / MARKER, KnownRun(run_id, tracking_uri, complete))


def _grouped(group: str, rows: Iterable[Row]) -> Iterator[Row]:
    """Yield rows whose metrics, seconds included, are `group/...`."""
    for row in rows:
        metrics = {f"{group}/{name}": row[name] for name in row if name != "samples"}
        yield {"samples": row["samples"], "seconds": row["seconds"], **metrics}


def _final(result: Mapping[str, Any]) -> Row:
    """Return the numbers of `result.json` as a row: `system/...` and `final/...`."""
    units: dict[str, str] = dict.fromkeys(_SYSTEM, "bytes")
    units |= {number.name: number.unit for number in NUMBERS}
    numbers = {
        f"{'system' if unit == 'bytes' else 'final'}/{name}": result[name]
        for name, unit in units.items()
        if isinstance(result.get(name), int | float)
    }
    return {"samples": 0, "seconds": 0.0} | numbers


def _of_data(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that decide the samples of the data set, and not where they are."""
    places = ("root", *declared_settings(Placement))
    return {name: value for name, value in config["data"].items() if name not in places}


def _table(path: Path, first: int = 0) -> Iterator[Row]:
    """Yield the complete rows of a CSV file from row `first` on; none if there is no file."""
    text = path.read_text() if path.exists() else ""
    lines = text[: text.rfind("\n") + 1].splitlines()  # a worker may be in the middle of a line
    for row in csv.DictReader([*lines[:1], *lines[1 + first :]]):
        yield {name: float(cell) if cell else None for name, cell in row.items()}
