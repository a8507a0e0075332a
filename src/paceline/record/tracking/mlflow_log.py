# pyright: basic
"""Run of one point in MLflow: parameters, tags, live and final curves, final metrics."""

import hashlib
import json
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from paceline.record.point_config import flat_settings
from paceline.record.tracking.mlflow_store import client, first_line

PARAM_LENGTH = 6000  # limit of MLflow 3.17, which cuts longer values
_PARAMS_PER_BATCH = 100
_METRICS_PER_BATCH = 1000

Row = Mapping[str, float | None]
T = TypeVar("T")


class LogError(Exception):
    """Failure to log to MLflow; the message names what is missing there, on one line.

    `is_busy`: True if the store answered, and the next try may succeed.
    """

    is_busy = False


class PointLog:
    """A run that exists in MLflow; `begin` creates a new one.

    `patience`: seconds for which each write is tried again while the database is locked.
    Writes wait for the store (3 ms, with many writers 50 ms): keep them out of a worker.
    Writing the same row twice leaves one row. Methods raise LogError.
    """

    def __init__(self, tracking_uri: str, run_id: str, *, patience: float = 20) -> None:
        self.run_id = run_id
        self._client = client(tracking_uri)
        self._tracking_uri = tracking_uri
        self._patience = patience
        run = self._attempt("the run", lambda: self._client.get_run(run_id))
        self._start_ms: int = run.info.start_time

    @classmethod
    def begin(
        cls,
        tracking_uri: str,
        experiment: str,
        run_name: str,
        tags: Mapping[str, str],
        started: float,
        *,
        patience: float = 20,
    ) -> "PointLog":
        """Create a run.

        `started`: UTC seconds since 1970; a row's time in MLflow is `started` plus its `seconds`.
        """
        store = client(tracking_uri)

        def create() -> Any:
            existing = store.get_experiment_by_name(experiment)
            if existing is None:
                raise LogError(f"no experiment {experiment} in {tracking_uri}")
            return store.create_run(
                existing.experiment_id, round(1000 * started), dict(tags), run_name
            )

        run = _attempt("the run", tracking_uri, patience, create)
        return cls(tracking_uri, run.info.run_id, patience=patience)

    def describe(self, params: Mapping[str, str], tags: Mapping[str, str]) -> None:
        """Log parameters and tags.

        Parameters longer than MLflow allows become `name.part1`, `name.part2`, ...
        """
        from mlflow.entities import Param, RunTag

        entities = [Param(*item) for item in _whole_params(params)]
        for batch in _batches(entities, _PARAMS_PER_BATCH):
            self._write(f"parameters {batch[0].key} to {batch[-1].key}", params=batch)
        self._write("tags", tags=[RunTag(name, value) for name, value in tags.items()])

    def log(self, rows: Iterable[Row]) -> None:
        """Log rows of `samples` (the step), `seconds` (of the training clock: when) and metrics.

        Metrics that are None are left out; NaN is kept as NaN, infinity as the largest float.
        """
        from mlflow.entities import Metric

        metrics = [
            Metric(name, value, self._start_ms + round(1000 * seconds), int(samples))
            for name, value, seconds, samples in _cells(rows)
        ]
        for batch in _batches(metrics, _METRICS_PER_BATCH):
            what = f"{len(batch)} metrics from sample {batch[0].step} to {batch[-1].step}"
            self._write(what, metrics=batch)

    def describe_data(self, name: str, settings: Mapping[str, Any]) -> None:
        """Log the data set: its name, and the digest of the settings by which it is made."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        text = json.dumps(settings, sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        used = DatasetInput(
            Dataset(name, digest, "code", text), [InputTag("mlflow.data.context", "training")]
        )
        self._attempt("the data set", lambda: self._client.log_inputs(self.run_id, [used]))

    def add_files(self, files: Iterable[Path]) -> None:
        """Copy files that exist to the artifacts of the run."""
        for path in files:
            if path.is_file():
                copy = partial(self._client.log_artifact, self.run_id, str(path))
                self._attempt(path.name, copy)

    def go_on(self) -> None:
        """Continue a run that has ended."""
        self._attempt("the run", lambda: self._client.update_run(self.run_id, "RUNNING"))

    def finish(self, status: str, wall_seconds: float | None) -> None:
        """End the run.

        `status`: FINISHED, FAILED or KILLED. `wall_seconds`: duration; None if it ends now.
        """
        end = None if wall_seconds is None else self._start_ms + round(1000 * wall_seconds)
        self._attempt("the end", lambda: self._client.set_terminated(self.run_id, status, end))

    def _write(self, what: str, **entities: Any) -> None:
        self._attempt(what, lambda: self._client.log_batch(self.run_id, **entities))

    def _attempt(self, what: str, call: Callable[[], T]) -> T:
        return _attempt(what, self._tracking_uri, self._patience, call)


def run_exists(tracking_uri: str, run_id: str) -> bool:
    """Return whether the store has a run. Raises LogError if the store does not answer."""
    from mlflow.exceptions import MlflowException

    try:
        client(tracking_uri).get_run(run_id)
    except MlflowException as error:
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":
            return False
        raise LogError(f"cannot read {tracking_uri}: {first_line(error)}") from error
    return True


def flat_params(config: Mapping[str, Any]) -> dict[str, str]:
    """Flatten settings to dotted names, as on the command line.

    Text stays as it is; lists and other values become JSON.
    """
    return {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in flat_settings(config).items()
    }


def _whole_params(params: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, value in params.items():
        if len(value) <= PARAM_LENGTH:
            yield name, value
        else:
            parts = _batches(value, PARAM_LENGTH)
            yield from ((f"{name}.part{n}", part) for n, part in enumerate(parts, start=1))


def _cells(rows: Iterable[Row]) -> Iterator[tuple[str, float, float, float]]:
    """Yield name, value, seconds and samples of each metric that is not None."""
    for row in rows:
        for name, value in row.items():
            if name not in ("samples", "seconds") and value is not None:
                yield name, float(value), row["seconds"] or 0.0, row["samples"] or 0.0


def _batches(items: Sequence, size: int) -> list:
    return [items[first : first + size] for first in range(0, len(items), size)]


def _attempt(what: str, tracking_uri: str, patience: float, call: Callable[[], T]) -> T:
    deadline = time.monotonic() + patience
    while True:
        try:
            return call()
        except LogError:
            raise
        except Exception as error:  # each kind of store raises errors of its own
            if time.monotonic() > deadline or not _passes(error):
                reason = f"{what} not logged to {tracking_uri}: {first_line(error)}"
                failure = LogError(reason)
                failure.is_busy = _passes(error)
                raise failure from error
        time.sleep(random.uniform(0.05, 0.5))  # apart from the other writers


def _passes(error: Exception) -> bool:
    """Return True if the next try may succeed."""
    code = getattr(error, "error_code", None)
    return code == "TEMPORARILY_UNAVAILABLE" or "database is locked" in str(error)
