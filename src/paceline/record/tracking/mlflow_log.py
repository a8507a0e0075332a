"""Writes runs of points and studies to an MLflow store: parameters, tags, metrics and files."""

import hashlib
import json
import logging
import os
import random
import socket
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from filelock import FileLock
from pydantic import ConfigDict, TypeAdapter

from paceline import errors
from paceline.errors import SettingError, tell
from paceline.record.point_config import flat_settings

if TYPE_CHECKING:
    from mlflow import MlflowClient

TIMEOUT = 20.0  # s, for which a write is tried again
_UNANSWERED = "INTERNAL_ERROR"  # MLflow's code if a server does not answer
_BUSY = "TEMPORARILY_UNAVAILABLE"  # if a database refuses a statement
_MISSING = "RESOURCE_DOES_NOT_EXIST"  # if there is no such run
_SECONDS = 8  # until a store counts as locked, or a server as unreachable
_LOCK_SECONDS = 120  # other processes may prepare the same file, each for about a second
_PORTS = {"http": 80, "https": 443, "postgresql": 5432, "mysql": 3306, "mssql": 1433}
_ENVIRONMENT = {  # unless the user sets it
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",  # MLflow's 7 take four minutes
    "MLFLOW_HTTP_REQUEST_TIMEOUT": str(_SECONDS),  # MLflow waits for 120 s
}

Row = Mapping[str, float | None]
T = TypeVar("T")


class LogError(Exception):
    """Failure to log to MLflow. Its message has one line and says what was not logged.

    `answered`: False if the store is a server that did not answer.
    """

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.code = code  # of MLflow
        self.answered = code != _UNANSWERED


@dataclass(frozen=True)
class KnownRun:
    """Run in MLflow that belongs to a record or to a study, as a file in its folder names it.

    `complete`: True if the whole record is logged. `axes`: settings that a study sweeps; the names
    of its points' runs contain their values.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")
    run_id: str
    tracking_uri: str
    complete: bool = False
    axes: list[str] = field(default_factory=list[str])

    @classmethod
    def read(cls, path: Path, tracking_uri: str | None = None) -> "KnownRun | None":
        """Return the run that a file names; None without the file, or if it is in another store.

        A file that is damaged, or of another version of Paceline, is renamed and counts as missing.
        """
        if not path.exists():
            return None
        try:
            run = TypeAdapter(cls).validate_python(json.loads(path.read_text()))
        except ValueError:
            aside = path.with_name(f"{path.name}.unreadable")
            with suppress(OSError):  # as where another process was faster
                path.replace(aside)
            fault = "is damaged or of another version, and counts as missing"
            tell(f"{path} {fault}; it is now {aside.name}")
            return None
        return run if tracking_uri in (None, run.tracking_uri) else None

    def write(self, path: Path) -> None:
        """Replace the file at once, since other processes may be reading it. Raises LogError."""
        written = path.with_name(f"{path.name}.partial")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            written.write_text(json.dumps(asdict(self), indent=1) + "\n")
            written.replace(path)
        except OSError as error:
            raise LogError(f"cannot write {path}: {error.strerror}") from error


class PointLog:
    """A run that exists in MLflow; `begin` creates a new one.

    `timeout`: seconds for which each write is tried again while the store is busy or does not
    answer; 0 for one try. A write takes about 3 ms, or 50 ms if there are many writers. Therefore,
    workers must not log. A row that is logged twice is stored once. Methods raise LogError.
    """

    def __init__(self, tracking_uri: str, run_id: str, *, timeout: float = TIMEOUT) -> None:
        self.run_id, self._client = run_id, _client(tracking_uri)
        self._tracking_uri, self._timeout = tracking_uri, timeout
        about = self._try("the run", self._client.get_run, run_id).info
        self.experiment_id: str = about.experiment_id
        self._start_ms: int = about.start_time

    @classmethod
    def begin(
        cls,
        tracking_uri: str,
        experiment: str,
        run_name: str,
        tags: Mapping[str, str],
        started: float,
        *,
        timeout: float = TIMEOUT,
    ) -> "PointLog":
        """Create a run.

        `started`: UTC seconds since 1970; a row's time in MLflow is `started` plus its `seconds`.
        """
        store = _client(tracking_uri)

        def create() -> str:
            existing = store.get_experiment_by_name(experiment)
            if existing is None:
                raise ValueError(f"there is no experiment {experiment}")
            about = existing.experiment_id, round(1000 * started), dict(tags), run_name
            return store.create_run(*about).info.run_id

        return cls(tracking_uri, _try("the run", tracking_uri, timeout, create), timeout=timeout)

    @classmethod
    def known(cls, run: KnownRun | None, *, timeout: float = TIMEOUT) -> "PointLog | None":
        """Return a run that was begun before; None if its store has no such run any more."""
        try:
            return cls(run.tracking_uri, run.run_id, timeout=timeout) if run else None
        except LogError as error:
            if error.code == _MISSING:
                return None
            raise

    def describe(self, params: Mapping[str, str], tags: Mapping[str, str]) -> None:
        """Log parameters and tags. MLflow cuts parameters of more than 6,000 characters."""
        from mlflow.entities import Param, RunTag

        entities = [Param(name, value) for name, value in params.items()]
        self._write("parameters", entities, [RunTag(*tag) for tag in tags.items()])

    def log(self, rows: Iterable[Row]) -> None:
        """Log rows of metrics with `samples` (the step) and `seconds` (of the training clock).

        Metrics that are None are left out; NaN is kept as NaN, infinity as the largest float.
        """
        from mlflow.entities import Metric

        metrics = [
            Metric(name, value, self._milliseconds(row["seconds"] or 0), int(row["samples"] or 0))
            for row in rows
            for name, value in row.items()
            if name not in ("samples", "seconds") and value is not None
        ]
        self._write(f"{len(metrics)} metrics", metrics=metrics)

    def describe_data(self, name: str, settings: Mapping[str, Any]) -> None:
        """Log the name of the data set, its settings, and their digest."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        text = json.dumps(settings, sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        tags = [InputTag("mlflow.data.context", "training")]
        used = DatasetInput(Dataset(name, digest, "code", text), tags)
        self._try("the data set", self._client.log_inputs, self.run_id, [used])

    def add_files(self, files: Iterable[Path]) -> None:
        """Copy files that exist to the artifacts of the run."""
        copy: Any = self._client.log_artifact  # type: ignore[reportUnknownMemberType]
        for path in files:
            if path.is_file():
                self._try(path.name, copy, self.run_id, str(path))

    def go_on(self) -> None:
        """Continue a run that has ended."""
        self._try("the run", self._client.update_run, self.run_id, "RUNNING")

    def finish(self, status: str, wall_seconds: float | None) -> None:
        """End the run.

        `status`: FINISHED, FAILED or KILLED. `wall_seconds`: duration; None if it ends now.
        """
        end = None if wall_seconds is None else self._milliseconds(wall_seconds)
        self._try("the end", self._client.set_terminated, self.run_id, status, end)

    def _milliseconds(self, seconds: float) -> int:
        return self._start_ms + round(1000 * seconds)

    def _write(self, what: str, params: Any = (), tags: Any = (), metrics: Any = ()) -> None:
        self._try(what, self._client.log_batch, self.run_id, metrics, params, tags)

    def _try(self, what: str, call: Callable[..., T], *arguments: Any) -> T:
        return _try(what, self._tracking_uri, self._timeout, call, *arguments)


def tag_experiment(tracking_uri: str, experiment: str, tags: Mapping[str, str]) -> None:
    """Set tags of an experiment that exists. Raises LogError."""
    store = _client(tracking_uri)

    def write() -> None:
        existing = store.get_experiment_by_name(experiment)
        if existing is None:
            raise ValueError(f"there is no experiment {experiment}")
        for name, value in tags.items():
            store.set_experiment_tag(existing.experiment_id, name, value)

    _try("tags", tracking_uri, TIMEOUT, write)


def _client(tracking_uri: str) -> "MlflowClient":
    """Make a client at the first try. Raises LogError, as for a store of a newer MLflow."""
    return _try("the run", tracking_uri, 0, client, tracking_uri)


def _try(
    what: str, tracking_uri: str, timeout: float, call: Callable[..., T], *arguments: Any
) -> T:
    deadline = time.monotonic() + timeout
    while True:
        try:
            return call(*arguments)
        except Exception as error:  # each kind of store raises errors of its own
            code = getattr(error, "error_code", None)
            may_pass = code in (_UNANSWERED, _BUSY) or "database is locked" in str(error)
            if time.monotonic() > deadline or not may_pass:
                reason = f"{what} not logged to {tracking_uri}: {_first_line(error)}"
                raise LogError(reason, code) from error
        time.sleep(random.uniform(0.05, 0.5))  # so that writers do not all try again together


def flat_params(config: Mapping[str, Any]) -> dict[str, str]:
    """Return settings by dotted name as texts: a text unchanged, any other value as JSON."""
    flat = flat_settings(config).items()
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in flat}


def client(tracking_uri: str) -> "MlflowClient":
    """Make a client that prints nothing, sends no telemetry, and asks a server only once.

    It waits for an answer for 8 seconds at most. MLflow's environment variables change that.
    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    from mlflow import MlflowClient  # 1.4 s

    for name in ("mlflow", "alembic", "urllib3.connectionpool"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return MlflowClient(tracking_uri)


def is_lost(tracking_uri: str) -> bool:
    """Return True if the store is a file that does not exist; a client would create it."""
    return tracking_uri.startswith("sqlite:") and not _path(tracking_uri).exists()


def prepare_store(tracking_uri: str, experiment: str) -> None:
    """Create the database and the experiment if they are missing.

    Many processes may call this at the same time.

    Raises SettingError("measurement.mlflow.tracking_uri") if the store cannot be written, is locked
    or cannot be reached, after 10 seconds at most.
    """
    try:
        if tracking_uri.startswith("sqlite:"):
            return _prepare_file(tracking_uri, experiment)
        address = urlsplit(tracking_uri)
        if address.hostname:
            port = address.port or _PORTS.get(address.scheme.partition("+")[0], 80)
            socket.create_connection((address.hostname, port), timeout=_SECONDS).close()
        _create_experiment(tracking_uri, experiment, None)  # the server has its own artifacts
    except SettingError:
        raise
    except Exception as error:  # each kind of store raises errors of its own
        reason = f"cannot use {tracking_uri}: {_first_line(error)}; null turns MLflow off"
        raise SettingError("measurement.mlflow.tracking_uri", reason) from error


def _prepare_file(tracking_uri: str, experiment: str) -> None:
    path = _path(tracking_uri)
    path.parent.mkdir(parents=True, exist_ok=True)
    Path(f"{path}.lock").touch()  # fails at once, where the lock would wait on some errors
    with FileLock(f"{path}.lock", timeout=_LOCK_SECONDS):
        with closing(sqlite3.connect(path, timeout=_SECONDS, isolation_level=None)) as database:
            database.execute("BEGIN IMMEDIATE")  # fails here, and not after MLflow's ten retries
        artifacts = (path.parent / "mlruns" / experiment.replace("/", "_")).absolute().as_uri()
        _create_experiment(tracking_uri, experiment, artifacts)


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


def _path(tracking_uri: str) -> Path:
    return Path(urlsplit(tracking_uri).path[1:])  # three slashes: relative; four: absolute


def _first_line(error: Exception) -> str:  # drivers append statements and links
    return errors.first_line(error).removeprefix("(sqlite3.OperationalError) ")
