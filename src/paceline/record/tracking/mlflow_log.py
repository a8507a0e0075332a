"""Run in MLflow of a point or a study: its parameters, tags, curves and final numbers."""

import hashlib
import json
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from paceline.record.point_config import flat_settings
from paceline.record.tracking.mlflow_store import client, first_line

PARAM_LENGTH = 6000  # limit of MLflow 3.17, which cuts longer values
_PARAMS_PER_BATCH = 100
_METRICS_PER_BATCH = 1000
# Codes of MLflow's errors: a server does not answer, a database refuses a statement, no such run.
_UNANSWERED, _BUSY, _MISSING = (
    "INTERNAL_ERROR",
    "TEMPORARILY_UNAVAILABLE",
    "RESOURCE_DOES_NOT_EXIST",
)
TIMEOUT = 20.0  # s

Row = Mapping[str, float | None]
Text = TypeVar("Text", str, Sequence[Any])
T = TypeVar("T")


class LogError(Exception):
    """Failure to log to MLflow; the message names what is missing there, on one line.

    `answered`: False if the store is a server that did not answer.
    """

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.code = code  # of MLflow

    @property
    def answered(self) -> bool:
        return self.code != _UNANSWERED


@dataclass(frozen=True)
class KnownRun:
    """Run in MLflow that belongs to a record or to a study.

    `complete`: True if all of the record is there. `axes`: settings that a study sweeps, by which
    the runs of its points are named.
    """

    run_id: str
    tracking_uri: str
    complete: bool = False
    axes: list[str] = field(default_factory=list[str])


class PointLog:
    """A run that exists in MLflow; `begin` creates a new one.

    `timeout`: seconds for which each write is tried again while the store is busy or does not
    answer; 0 for one try. Writes wait for the store (3 ms, with many writers 50 ms): keep them out
    of a worker. Writing the same row twice leaves one row. Methods raise LogError.
    """

    def __init__(self, tracking_uri: str, run_id: str, *, timeout: float = TIMEOUT) -> None:
        self.run_id = run_id
        self._tracking_uri, self._timeout = tracking_uri, timeout
        self._client = client(tracking_uri)
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
        store = client(tracking_uri)
        by_name = store.get_experiment_by_name
        existing = _try("the run", tracking_uri, timeout, by_name, experiment)
        if existing is None:
            raise LogError(f"no experiment {experiment} in {tracking_uri}")
        about = existing.experiment_id, round(1000 * started), dict(tags), run_name
        run = _try("the run", tracking_uri, timeout, store.create_run, *about)
        return cls(tracking_uri, run.info.run_id, timeout=timeout)

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


def named_run(path: Path, tracking_uri: str | None = None) -> KnownRun | None:
    """Return the run that the file `path` names; None if it is not there, or of another store."""
    if not path.exists():
        return None
    names = [each.name for each in fields(KnownRun)]
    written = json.loads(path.read_text())
    run = KnownRun(**{name: written[name] for name in names if name in written})
    return run if tracking_uri in (None, run.tracking_uri) else None


def name_run(path: Path, run: KnownRun) -> None:
    """Write the file that names a run, which others may be reading. Raises LogError."""
    written = path.with_name(f"{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        written.write_text(json.dumps(asdict(run), indent=1) + "\n")
        written.replace(path)
    except OSError as error:
        raise LogError(f"cannot write {path}: {error.strerror}") from error


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


def _batches(items: Text, size: int) -> list[Text]:
    return [items[first : first + size] for first in range(0, len(items), size)]


def _try(
    what: str, tracking_uri: str, timeout: float, call: Callable[..., T], *arguments: Any
) -> T:
    deadline = time.monotonic() + timeout
    while True:
        try:
            return call(*arguments)
        except LogError:
            raise
        except Exception as error:  # each kind of store raises errors of its own
            code = getattr(error, "error_code", None)
            may_pass = code in (_UNANSWERED, _BUSY) or "database is locked" in str(error)
            if time.monotonic() > deadline or not may_pass:
                reason = f"{what} not logged to {tracking_uri}: {first_line(error)}"
                raise LogError(reason, code) from error
        time.sleep(random.uniform(0.05, 0.5))  # so that writers do not all try again together
