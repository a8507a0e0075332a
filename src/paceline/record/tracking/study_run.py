"""Run of a whole study in MLflow: the parent of the runs of its points.

A file in the folder of the study's records names it, where points find it from any process. Under
`dvc exp run`, which may change the settings of the study, the experiment has a run of its own.
"""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from paceline.record.measurement import MLflow
from paceline.record.tracking.mlflow_log import (
    KnownRun,
    LogError,
    PointLog,
    name_run,
    named_run,
)
from paceline.record.tracking.mlflow_store import is_lost


def study_run(folder: Path, tracking_uri: str | None) -> KnownRun | None:
    """Return the run of the study whose records are in `folder`; None if that store has none."""
    return named_run(_named_in(folder), tracking_uri)


def begin_study_run(
    folder: Path, mlflow: MLflow, axes: Sequence[str], tags: Mapping[str, str]
) -> str | None:
    """Begin the run of a study, or go on with it. Returns the reason of a failure, or None."""
    uri = mlflow.tracking_uri
    if uri is None:
        return None
    try:
        log = PointLog.known(study_run(folder, uri))
        if log is not None:
            log.go_on()
        else:
            log = PointLog.begin(uri, mlflow.experiment, _name(folder), tags, time.time())
        log.describe({}, tags)
        name_run(_named_in(folder), KnownRun(log.run_id, uri, axes=list(axes)))
    except LogError as error:
        return str(error)
    return None


def end_study_run(
    folder: Path, mlflow: MLflow, status: str, numbers: Mapping[str, float]
) -> str | None:
    """End the run of a study. `status`: FINISHED, FAILED or KILLED; `numbers`: of its points.

    Returns the reason of a failure, or None.
    """
    run = study_run(folder, mlflow.tracking_uri)
    if run is None:
        return None
    try:
        log = PointLog(run.tracking_uri, run.run_id)
        log.log([{"samples": 0, "seconds": 0, **numbers}])
        log.finish(status, None)
    except LogError as error:
        return str(error)
    return None


def log_study_files(folder: Path, files: Sequence[Path]) -> str | None:
    """Add files to the run of the study whose records are in `folder`, if it has one.

    Returns the reason of a failure, or None.
    """
    run = named_run(_named_in(folder))
    if run is None:
        return None
    if is_lost(run.tracking_uri):
        return f"{', '.join(each.name for each in files)} not logged: no {run.tracking_uri}"
    try:
        PointLog(run.tracking_uri, run.run_id, timeout=0).add_files(files)
    except LogError as error:
        return str(error)
    return None


def _experiment() -> str:
    return os.environ.get("DVC_EXP_NAME", "")


def _name(folder: Path) -> str:
    return f"{folder.name} {_experiment()}".strip()


def _named_in(folder: Path) -> Path:
    return folder / f"mlflow_parent{_experiment() and '_'}{_experiment()}.json"
