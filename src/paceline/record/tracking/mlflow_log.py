"""Runs in MLflow of points and studies: their store, parameters, tags, curves and final numbers."""

import hashlib
import json
import logging
import os
import random
import socket
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from filelock import FileLock

from paceline import errors
from paceline.errors import SettingError
from paceline.record.point_config import flat_settings

if TYPE_CHECKING:
    from mlflow import MlflowClient

TIMEOUT = 20.0  # s, for which a write is tried again
PARAM_LENGTH = 6000  # limit of MLflow 3.17, which cuts longer values
_PARAMS_PER_BATCH, _METRICS_PER_BATCH = 100, 1000
_UNANSWERED = "INTERNAL_ERROR"  # codes of MLflow: a server does not answer,
_BUSY = "TEMPORARILY_UNAVAILABLE"  # a database refuses a statement,
_MISSING = "RESOURCE_DOES_NOT_EXIST"  # there is no such run
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
Items = TypeVar("Items", str, Sequence[Any])


class LogError(Exception):
    """Failure to log to MLflow; the message names what is missing there, on one line.

    `answered`: False if the store is a server that did not answer.
    """

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.code = code  # of MLflow
        self.answered = code != _UNANSWERED


@dataclass(frozen=True)
class KnownRun:
    """Run in MLflow that belongs to a record or to a study, as a file in its folder names it.

    `complete`: True if all of the record is there. `axes`: settings that a study sweeps, by which
    the runs of its points are named.
    """

    run_id: str
    tracking_uri: str
    complete: bool = False
    axes: list[str] = field(default_factory=list[str])

    @classmethod
    def read(cls, path: Path, tracking_uri: str | None = None) -> "KnownRun | None":
        """Return the run that a file names; None without the file, or if it is in another store."""
        if not path.exists():
            return None
        run = cls(**json.loads(path.read_text()))
        return run if tracking_uri in (None, run.tracking_uri) else None

    def write(self, path: Path) -> None:
        """Write the file, which others may be reading. Raises LogError."""
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
    answer; 0 for one try. Writes wait for the store (3 ms, with many writers 50 ms): keep them out
    of a worker. Writing the same row twice leaves one row. Methods raise LogError.
    """

    def __init__(self, tracking_uri: str, run_id: str, *, timeout: float = TIMEOUT) -> None:
        self.run_id, self._client = run_id, client(tracking_uri)
        self._tracking_uri, self._timeout = tracking_uri, timeout
        self._start_ms: int = self._try("the run", self._client.get_run, run_id).info.start_time

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
        store, trying = client(tracking_uri), ("the run", tracking_uri, timeout)
        existing = _try(*trying, store.get_experiment_by_name, experiment)
        if existing is None:
            raise LogError(f"no experiment {experiment} in {tracking_uri}")
        about = existing.experiment_id, round(1000 * started), dict(tags), run_name
        run_id = _try(*trying, store.create_run, *about).info.run_id
        return cls(tracking_uri, run_id, timeout=timeout)

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
        """Log parameters and tags.

        Parameters longer than MLflow allows become `name.part1`, `name.part2`, ...
        """
        from mlflow.entities import Param, RunTag

        entities: list[Param] = []
        for name, value in params.items():
            parts = _batches(value, PARAM_LENGTH)
            if len(parts) < 2:
                entities.append(Param(name, value))
            else:
                entities += [Param(f"{name}.part{n}", part) for n, part in enumerate(parts, 1)]
        for batch in _batches(entities, _PARAMS_PER_BATCH):
            self._write(f"parameters {batch[0].key} to {batch[-1].key}", params=batch)
        self._write("tags", tags=[RunTag(name, value) for name, value in tags.items()])

    def log(self, rows: Iterable[Row]) -> None:
        """Log rows of `samples` (the step), `seconds` (of the training clock: when) and metrics.

        Metrics that are None are left out; NaN is kept as NaN, infinity as the largest float.
        """
        from mlflow.entities import Metric

        metrics = [
            Metric(
                name,
                float(value),
                self._start_ms + round(1000 * (row["seconds"] or 0.0)),
                int(row["samples"] or 0),
            )
            for row in rows
            for name, value in row.items()
            if name not in ("samples", "seconds") and value is not None
        ]
        for batch in _batches(metrics, _METRICS_PER_BATCH):
            what = f"{len(batch)} metrics from sample {batch[0].step} to {batch[-1].step}"
            self._write(what, metrics=batch)

    def describe_data(self, name: str, settings: Mapping[str, Any]) -> None:
        """Log the data set: its name, and the digest of the settings by which it is made."""
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
        end = None if wall_seconds is None else self._start_ms + round(1000 * wall_seconds)
        self._try("the end", self._client.set_terminated, self.run_id, status, end)

    def _write(self, what: str, **entities: Any) -> None:
        self._try(what, lambda: self._client.log_batch(self.run_id, **entities))

    def _try(self, what: str, call: Callable[..., T], *arguments: Any) -> T:
        return _try(what, self._tracking_uri, self._timeout, call, *arguments)


def _batches(items: Items, size: int) -> list[Items]:
    return [items[first : first + size] for first in range(0, len(items), size)]


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
    """Flatten settings to dotted names, as on the command line.

    Text stays as it is; lists and other values become JSON.
    """
    return {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in flat_settings(config).items()
    }


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


def is_lost(tracking_uri: str) -> bool:
    """Return True if the store was a file that is no longer there; a client would make it anew."""
    return tracking_uri.startswith("sqlite:") and not _path(tracking_uri).exists()


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
        reason = f"cannot use {tracking_uri}: {_first_line(error)}; null goes without MLflow"
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


def _path(tracking_uri: str) -> Path:
    return Path(urlsplit(tracking_uri).path[1:])  # three slashes: relative; four: absolute


def _first_line(error: Exception) -> str:
    """Return the first line of an error's text; drivers append statements and links."""
    return errors.first_line(error).removeprefix("(sqlite3.OperationalError) ")
