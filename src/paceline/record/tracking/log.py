"""Entry to MLflow: prepare its store before any process starts, log a record afterwards."""

from pathlib import Path

from paceline.measurement.measurement import MLflow
from paceline.record.tracking.mlflow_log import LogError
from paceline.record.tracking.mlflow_record import log_record
from paceline.record.tracking.mlflow_store import prepare_store


def prepare_log(mlflow: MLflow) -> None:
    """Create the store that runs are logged to. Raises SettingError if it cannot be used."""
    if mlflow.tracking_uri is not None:
        prepare_store(mlflow.tracking_uri, mlflow.experiment)


def log(folder: Path, mlflow: MLflow) -> str | None:
    """Log the record to MLflow, unless it is there. Returns the reason of a failure, or None."""
    if mlflow.tracking_uri is None:
        return None
    try:
        log_record(folder, mlflow.tracking_uri, mlflow.experiment)
    except LogError as error:
        return str(error)
    return None
