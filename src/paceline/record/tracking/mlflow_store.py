"""Store of MLflow, created before workers start; its errors are those of a setting."""

import logging
import os
import socket
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from filelock import FileLock

from paceline import errors
from paceline.errors import SettingError

if TYPE_CHECKING:
    from mlflow import MlflowClient

_SECONDS = 8  # until a store counts as locked, or a server as unreachable
# Other processes may prepare the same file: 1.5 s for the first, 0.8 s for each further one.
_LOCK_SECONDS = 120
_PORTS = {"http": 80, "https": 443, "postgresql": 5432, "mysql": 3306, "mssql": 1433}
_ENVIRONMENT = {  # unless the user sets it
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",  # MLflow's 7 take four minutes
    "MLFLOW_HTTP_REQUEST_TIMEOUT": str(_SECONDS),  # MLflow waits for 120 s
}


def prepare_store(tracking_uri: str, experiment: str) -> None:
    """Create the database and the experiment if missing; safe in many processes at once.

    Raises SettingError("measurement.mlflow.tracking_uri") if the store cannot be written, is locked
    or cannot be reached, after 10 seconds at most.
    """
    try:
        if tracking_uri.startswith("sqlite:"):
            _prepare_file(tracking_uri, experiment)
        else:
            _prepare_server(tracking_uri, experiment)
    except SettingError:
        raise
    except Exception as error:  # each kind of store raises errors of its own
        reason = f"cannot use {tracking_uri}: {first_line(error)}; null goes without MLflow"
        raise SettingError("measurement.mlflow.tracking_uri", reason) from error


def client(tracking_uri: str) -> "MlflowClient":
    """Make a client that writes nothing to the terminal and sends no telemetry.

    It asks a server once, and waits for 8 seconds at most; MLflow's variables in the environment
    change that.
    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    from mlflow import MlflowClient  # 1.4 s

    for name in ("mlflow", "alembic", "urllib3.connectionpool"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return MlflowClient(tracking_uri)


def first_line(error: Exception) -> str:
    """Return the first line of an error's text; drivers append statements and links."""
    return errors.first_line(error).removeprefix("(sqlite3.OperationalError) ")


def is_lost(tracking_uri: str) -> bool:
    """Return True if the store was a file that is no longer there; a client would make it anew."""
    return tracking_uri.startswith("sqlite:") and not _path(tracking_uri).exists()


def _path(tracking_uri: str) -> Path:
    return Path(urlsplit(tracking_uri).path[1:])  # three slashes: relative; four: absolute


def _prepare_file(tracking_uri: str, experiment: str) -> None:
    path = _path(tracking_uri)
    path.parent.mkdir(parents=True, exist_ok=True)
    Path(f"{path}.lock").touch()  # fails at once, where the lock would wait on some errors
    with FileLock(f"{path}.lock", timeout=_LOCK_SECONDS):
        with closing(sqlite3.connect(path, timeout=_SECONDS, isolation_level=None)) as database:
            database.execute("BEGIN IMMEDIATE")  # fails here, and not after MLflow's ten retries
        artifacts = (path.parent / "mlruns" / experiment.replace("/", "_")).absolute().as_uri()
        _create_experiment(tracking_uri, experiment, artifacts)


def _prepare_server(tracking_uri: str, experiment: str) -> None:
    address = urlsplit(tracking_uri)
    if address.hostname:
        port = address.port or _PORTS.get(address.scheme.partition("+")[0], 80)
        socket.create_connection((address.hostname, port), timeout=_SECONDS).close()
    _create_experiment(tracking_uri, experiment, None)  # artifacts are the server's own


def _create_experiment(tracking_uri: str, name: str, artifacts: str | None) -> None:
    from mlflow.exceptions import MlflowException

    store = client(tracking_uri)
    existing = store.get_experiment_by_name(name)
    if existing is None:
        try:
            store.create_experiment(name, artifacts)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":  # another process was faster
                raise
    elif existing.lifecycle_stage != "active":
        message = f"{name} was deleted in MLflow: restore it there, or choose another name"
        raise SettingError("measurement.mlflow.experiment", message)
