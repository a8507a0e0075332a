"""Logs the records of a study to MLflow: one run for each record, in the experiment of the study.

Only the process that trains or sweeps logs, in one thread, so that neither workers nor the points
of a sweep wait for MLflow. A record that could not be logged is logged by the next sweep.
"""

import csv
import json
import logging
import os
import sqlite3
import sys
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from filelock import FileLock

from paceline.errors import SettingError, first_line, refused
from paceline.record.label import AXES, run_label
from paceline.record.measurement import MLflow
from paceline.record.point_config import flat_settings
from paceline.record.reading import (
    chosen_attempt,
    read_config,
    read_result,
    record_version,
)
from paceline.record.record import records_in
from paceline.record.result import NUMBERS

if TYPE_CHECKING:
    from mlflow import MlflowClient

_USUAL = (*AXES, "data", "model", "training.lr")  # parameters of each run of a study
_FILES = ("config.yaml", "result.json", "curve.csv")
_COMPARED = {  # what users compare: MLflow shows its charts before those of other numbers
    "test_top1": "accuracy/top1",
    "images_per_second": "throughput/images_per_second",
    "seconds": "time/seconds",
}
_VALIDATION = ("top1", "top5", "averaged_top1")  # of those images, where users expect test images
_PERIOD = 2.0  # s between two looks at the records
_SECONDS = 8  # until a database counts as locked, or a server as unreachable
_LOCK_SECONDS = 120  # other processes may create the same database, each for seconds
_LOGGED = """
select experiment_id, key.value, started.value, present.value, kind.value from experiments
  join runs using (experiment_id) join tags key using (run_uuid)
  join tags started using (run_uuid) join tags present using (run_uuid)
  join tags kind using (run_uuid)
  where experiments.name = ? and experiments.lifecycle_stage = 'active'
    and runs.lifecycle_stage = 'active' and key.key = 'key' and started.key = 'started'
    and present.key = 'present' and kind.key = 'kind'
"""  # runs of records, in MLflow's database
_ENVIRONMENT = {  # unless the user sets it
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",  # MLflow's 7 take four minutes
    "MLFLOW_HTTP_REQUEST_TIMEOUT": str(_SECONDS),  # MLflow waits for 120 s
}

Row = Mapping[str, Any]  # numbers or None by metric, at `samples` and `seconds`


class RecordLog:
    """Context manager in which a thread logs the records of a study to MLflow.

    The context ends after all records were logged that can be; then `failure` is the reason why
    others were not, or None.

    `folder`: folder of the study's records. `axes`: settings that differ between its points: they
    name the runs, and are their parameters, besides a few usual ones. A run of no study has all
    settings that are not null. `present`: returns the keys of the points that the study now has;
    the runs of their records are tagged as present, and a saved view for each kind of run averages
    them over seeds. `key`: the only record to be logged; None for all. `note`: description of the
    experiment. Without a `tracking_uri`, the context does nothing. Entering it creates the store
    and the experiment, and raises SettingError if the store cannot be used.
    """

    def __init__(
        self,
        folder: Path,
        mlflow: MLflow,
        axes: Sequence[str] = (),
        *,
        present: Callable[[], Collection[str]] = tuple[str],
        key: str | None = None,
        note: str | None = None,
    ) -> None:
        self.failure: str | None = None
        self._folder, self._mlflow, self._axes = folder, mlflow, axes
        self._present, self._key, self._note = present, key, note
        self._tagged: Collection[str] = ()  # keys of the points whose runs are tagged as present
        self._views = set[str]()  # kinds of runs that have a view
        self._uri = mlflow.tracking_uri or ""
        self._versions = dict[str, int | None]()  # of the records that were looked at, by key
        self._begun = dict[str, str]()  # runs that are not whole yet, by the key of their record
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="mlflow", daemon=True)

    @property
    def address(self) -> str:
        """Where the runs are shown: an address, after the command that shows a database."""
        page = f"/#/experiments/{self._experiment}/runs"
        page += f"?viewStateShareKey={min(self._views)}" if self._views else ""
        if self._uri.startswith("http"):
            return self._uri.rstrip("/") + page
        shown = f"mlflow ui --backend-store-uri {self._uri}, then http://127.0.0.1:5000{page}"
        if ".dvc/tmp/exps" in str(Path.cwd()):
            setting = "measurement.mlflow.tracking_uri"
            return f"{shown}; DVC deletes them with this folder, unless {setting} names another"
        return shown

    def __enter__(self) -> Self:
        if self._uri:
            what = f"null turns MLflow off; cannot use {self._uri}"
            with refused("measurement.mlflow.tracking_uri", what), _alone(self._uri):
                self._open()
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        if self._uri:
            self._thread.join()

    def catch_up(self) -> None:
        """Log records that could not be logged before; without any, MLflow is not imported."""
        if self._uri and not self._is_logged():
            with self:
                pass

    def _is_logged(self) -> bool:
        """Return True if a database of MLflow has a run of each record, and those of the present
        points are tagged so; this imports no MLflow.

        Also False if that is not known, as of a server, or of a database of another version.
        """
        file = _database(self._uri)
        if file is None or not file.is_file():
            return False
        address = f"{file.absolute().as_uri()}?mode=ro"
        try:
            with closing(sqlite3.connect(address, _SECONDS, uri=True)) as opened:
                rows = opened.execute(_LOGGED, (self._mlflow.experiment,)).fetchall()
        except sqlite3.Error:
            return False
        logged = {(key, started) for _, key, started, _, _ in rows}
        folders = (each for each in records_in(self._folder) if self._key in (None, each.name))
        results = {folder.name: read_result(folder) for folder in folders}
        if any(r is not None and (key, r["started"]) not in logged for key, r in results.items()):
            return False
        present = {key for _, key, _, is_present, _ in rows if is_present == _yes_no(True)}
        if not rows or (self._axes and present != {*self._present()} & {key for key, _ in logged}):
            return False
        self._experiment = str(rows[0][0])
        self._views = {kind for *_, kind in rows} if self._axes else set[str]()
        return True

    def _open(self) -> None:
        """Create the store and the experiment, and end the runs that killed processes left."""
        artifacts = None  # a server has its own
        if database := _database(self._uri):
            with closing(sqlite3.connect(database, _SECONDS, isolation_level=None)) as opened:
                opened.execute("BEGIN IMMEDIATE")  # fails here, and not after MLflow's ten retries
            folder = database.parent / "mlruns" / self._mlflow.experiment.replace("/", "_")
            artifacts = folder.absolute().as_uri()
        self._client = client(self._uri)
        self._experiment = self._experiment_id(artifacts)
        if self._note:
            self._client.set_experiment_tag(self._experiment, "mlflow.note.content", self._note)
        mine = f" and tags.key = '{self._key}'" if self._key else ""
        left = f"attributes.status = 'RUNNING'{mine}"
        for run in self._client.search_runs([self._experiment], left):
            self._client.set_terminated(run.info.run_id, "KILLED")

    def _experiment_id(self, artifacts: str | None) -> str:
        from mlflow.exceptions import MlflowException

        name = self._mlflow.experiment
        tags = {"mlflow.experimentKind": "custom_model_development"}  # else shown as of GenAI
        try:
            return self._client.create_experiment(name, artifacts, tags)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        existing: Any = self._client.get_experiment_by_name(name)
        if existing.lifecycle_stage != "active":
            message = f"{name} was deleted in MLflow: restore it there, or choose another name"
            raise SettingError("measurement.mlflow.experiment", message)
        return existing.experiment_id

    def _follow(self) -> None:
        yield_to_workers()
        is_last = False
        while not is_last:
            is_last = self._stopped.wait(_PERIOD)
            try:
                self._log_new()
                self.failure = None
            except Exception as error:  # the next look, or the next sweep, tries again
                what = f"{self._uri} lacks records, which the next sweep logs"
                self.failure = f"{what}: {first_line(error)}"

    def _log_new(self) -> None:
        """Tag the runs of the present points, and log the records that are new."""
        if (present := self._present()) != self._tagged:
            self._tag(present)
        for folder in records_in(self._folder):
            version = record_version(folder)
            if self._key in (None, folder.name) and version != self._versions.get(folder.name):
                self._log_record(folder)
                self._versions[folder.name] = version

    def _tag(self, present: Collection[str]) -> None:
        """Tag the runs of the records of present points as present and by their configuration, and
        all others as not present.
        """
        study, left = f"tags.study = '{self._folder.name}'", set(present)
        with _alone(self._uri):
            for run in self._client.search_runs([self._experiment], study, max_results=50_000):
                key, tags = run.data.tags["key"], run.data.tags
                record = self._folder / key
                result = read_result(record) if key in left else None
                counts = result is not None and str(result["started"]) == tags.get("started")
                new = {"present": _yes_no(counts)}
                if counts:
                    left.discard(key)
                    name = run_label(read_config(record).values, self._axes or AXES)
                    new |= {"configuration": _but_the_seed(name), "mlflow.runName": name}
                for tag, value in new.items():
                    if tags.get(tag) != value:
                        self._client.set_tag(run.info.run_id, tag, value)
                self._save_view(tags["kind"])
        self._tagged = present

    def _save_view(self, kind: str) -> None:
        """Save a view of the present runs of a kind, which MLflow shows in its menu "Views".

        MLflow keeps it in a tag, whose format is not documented; a page that cannot read it ignores
        it. The columns that the page shows without a view are chosen in the browser alone.
        """
        if kind in self._views or not self._axes:
            return
        metrics = [f"metrics.`{name}`" for name in _COMPARED.values()]
        params = [f"params.`{name}`" for name in dict.fromkeys([*AXES, *self._axes])]
        present = "attributes.status = 'FINISHED' and tags.present = 'true'"
        by_configuration = [{"mode": "tag", "groupByData": "configuration"}]
        state = {
            "searchFilter": f"{present} and tags.kind = '{kind}'",
            "orderByKey": metrics[0],
            "selectedColumns": [*metrics, *params],
            "groupBy": {"aggregateFunction": "average", "groupByKeys": by_configuration},
            "runsHiddenMode": "SHOW_ALL",
        }
        view = json.dumps({"name": kind, "createdAt": 0, "state": json.dumps(state)})
        self._client.set_experiment_tag(self._experiment, f"mlflow.sharedViewState.{kind}", view)
        self._views.add(kind)

    def _log_record(self, folder: Path) -> None:
        """Log a complete and valid record, unless it was logged before."""
        from mlflow.entities import Metric, RunTag

        key, result = folder.name, read_result(folder)
        if result is None:
            return
        about = {n: str(result[n]) for n in ("study", "kind", "status", "commit", "started")}
        known = f"tags.key = '{key}' and tags.study = '{about['study']}'"
        with _alone(self._uri):
            older = self._client.search_runs([self._experiment], known)
            if any(run.data.tags["started"] == about["started"] for run in older):
                return
            for run in older:
                self._client.set_tag(run.info.run_id, "present", "false")
            begun = 1000 * datetime.fromisoformat(result["started"]).timestamp()
            run = self._begun.get(key) or self._begin(folder, round(begun))
            attempt = chosen_attempt(folder)
            metrics = [
                Metric(name, value, round(begun + 1000 * row["seconds"]), int(row["samples"]))
                for row in (*_curve(attempt / "curve.csv"), _final(result))
                for name, value in row.items()
                if name not in ("samples", "seconds") and value is not None
            ]
            self._client.log_batch(run, metrics)
            for name in _FILES:
                copy: Any = self._client.log_artifact  # type: ignore[reportUnknownMemberType]
                copy(run, str(attempt / name))
            tags = [RunTag(*tag) for tag in about.items()]
            self._client.log_batch(run, tags=tags)  # last: by them a run is known as whole
            self._save_view(about["kind"])
            status = "FINISHED" if result["status"] == "finished" else "FAILED"
            self._client.set_terminated(run, status, round(begun + 1000 * result["wall_seconds"]))
        self._begun.pop(key, None)  # a later record of the point has a run of its own

    def _begin(self, folder: Path, started: int) -> str:
        """Return the id of a new run with the settings of a record."""
        from mlflow.entities import Param

        config, key = read_config(folder).values, folder.name
        label = run_label(config, self._axes or AXES)
        tags = {
            "key": key,
            "configuration": _but_the_seed(label),
            "tuning": _yes_no(config.get("trial")),
            "present": _yes_no(key in self._tagged),
        }
        about = started, tags, label
        run = self._begun[key] = self._client.create_run(self._experiment, *about).info.run_id
        texts = {n.removeprefix("names."): text for n, text in flat_params(config).items()}
        names = {*_USUAL, *self._axes} if self._axes else texts
        params = [Param(n, text) for n, text in texts.items() if n in names and text != "null"]
        self._client.log_batch(run, params=params)
        return run


def client(tracking_uri: str) -> "MlflowClient":
    """Make a client that prints nothing and sends no telemetry.

    It asks a server three times, and waits 8 seconds for each answer, unless MLflow's environment
    variables change that.
    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    from mlflow import MlflowClient  # 1.4 s

    for name in ("mlflow", "alembic", "urllib3.connectionpool"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return MlflowClient(tracking_uri)


def flat_params(config: Mapping[str, Any]) -> dict[str, str]:
    """Return settings by dotted name as texts: a text unchanged, any other value as JSON."""
    flat = flat_settings(config).items()
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in flat}


def yield_to_workers() -> None:
    """Give this thread the lowest priority; only Linux has a priority for each thread."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)


def _alone(tracking_uri: str) -> AbstractContextManager[object]:
    """Return a lock of a database that is a file, whose writers would fail if they met.

    A server needs no lock.
    """
    database = _database(tracking_uri)
    if database is None:
        return nullcontext()
    database.parent.mkdir(parents=True, exist_ok=True)
    lock = Path(f"{database}.lock")
    lock.touch()  # fails at once, where FileLock would wait on some errors
    return FileLock(lock, timeout=_LOCK_SECONDS)


def _database(tracking_uri: str) -> Path | None:
    if not tracking_uri.startswith("sqlite:"):
        return None
    return Path(urlsplit(tracking_uri).path[1:])  # three slashes: relative; four: absolute


def _final(result: Mapping[str, Any]) -> Row:
    """Return the numbers of `result.json` as metrics: as in _COMPARED, `final/`, or `system/`."""
    groups = {"wall_seconds": "system", "launch_seconds": "system"}
    groups |= {each.name: "system" if each.unit == "bytes" else "final" for each in NUMBERS}
    numbers = {
        _COMPARED.get(name) or _metric(group, name): result[name]
        for name, group in groups.items()
        if isinstance(result.get(name), int | float)
    }
    return {"samples": 0, "seconds": 0.0} | numbers


def _curve(path: Path) -> list[Row]:
    """Return the rows of curve.csv, with `samples` and `seconds` of the training clock.

    The names of the metrics begin with `curve/`; `curve/seconds` repeats the seconds of the row.
    """
    rows = list[Row]()
    for cells in csv.DictReader(path.read_text().splitlines()):
        row = {name: float(cell) if cell else None for name, cell in cells.items()}
        metrics = {_metric("curve", name): row[name] for name in row if name != "samples"}
        rows.append({"samples": row["samples"], "seconds": row["seconds"], **metrics})
    return rows


def _metric(group: str, name: str) -> str:
    """Return the name of a metric, where accuracy without another word is that on test images."""
    words = name.replace("top", "validation_top") if name in _VALIDATION else name
    return f"{group}/{words}"


def _but_the_seed(label: str) -> str:
    return label.rpartition(" ")[0]


def _yes_no(value: object) -> str:
    return "true" if value else "false"
