"""Run of a whole study in MLflow: the parent of the runs of its points.

Its identity is kept in the folder of the study's records, where points find it from any process.
"""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from paceline.measurement.measurement import MLflow
from paceline.record.tracking.mlflow_log import LogError, PointLog, run_exists
from paceline.record.tracking.mlflow_store import impatient, is_lost

_FILE = "mlflow_parent.json"


class StudyRun(TypedDict):
    """Run of a study. `axes`: settings that it sweeps, by which runs of its points are named."""

    run_id: str
    tracking_uri: str
    axes: list[str]


def study_run(folder: Path, tracking_uri: str) -> StudyRun | None:
    """Return the run of the study whose records are in `folder`; None if that store has none."""
    path = folder / _FILE
    found: StudyRun | None = json.loads(path.read_text()) if path.exists() else None
    return found if found and found["tracking_uri"] == tracking_uri else None


def begin_study_run(
    folder: Path, mlflow: MLflow, axes: Sequence[str], tags: Mapping[str, str]
) -> str | None:
    """Begin the run of a study, or go on with it. Returns the reason of a failure, or None."""
    uri = mlflow.tracking_uri
    if uri is None:
        return None
    try:
        known = study_run(folder, uri)
        if known and run_exists(uri, known["run_id"]):
            log = PointLog(uri, known["run_id"])
            log.go_on()
        else:
            log = PointLog.begin(uri, mlflow.experiment, folder.name, tags, time.time())
        log.describe({}, tags)
        run = StudyRun(run_id=log.run_id, tracking_uri=uri, axes=list(axes))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _FILE).write_text(json.dumps(run, indent=1) + "\n")
    except LogError as error:
        return str(error)
    return None


def end_study_run(
    folder: Path, mlflow: MLflow, status: str, numbers: Mapping[str, float]
) -> str | None:
    """End the run of a study. `status`: FINISHED, FAILED or KILLED; `numbers`: of its points.

    Returns the reason of a failure, or None.
    """
    run = study_run(folder, mlflow.tracking_uri) if mlflow.tracking_uri else None
    if run is None:
        return None
    try:
        log = PointLog(run["tracking_uri"], run["run_id"])
        log.log([{"samples": 0, "seconds": 0, **numbers}])
        log.finish(status, None)
    except LogError as error:
        return str(error)
    return None


def log_study_files(folder: Path, files: Sequence[Path]) -> str | None:
    """Add files to the run of the study whose records are in `folder`, if it has one.

    Returns the reason of a failure, or None.
    """
    path = folder / _FILE
    if not path.exists():
        return None
    run: StudyRun = json.loads(path.read_text())
    if is_lost(run["tracking_uri"]):
        return f"{', '.join(each.name for each in files)} not logged: no {run['tracking_uri']}"
    try:
        with impatient():
            log = PointLog(run["tracking_uri"], run["run_id"], patience=0)
            log.add_files(files)
    except LogError as error:
        return str(error)
    return None
