"""Live logging of a running point to MLflow by a thread of its launcher."""

import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from paceline.record.point_config import PointConfig
from paceline.record.tracking.mlflow_log import LogError, PointLog, flat_params
from paceline.record.tracking.mlflow_record import end_lost_run, live_rows, run_about, write_marker
from paceline.record.tracking.mlflow_store import impatient

_PERIOD = 1.0  # seconds
_PATIENCE = 10.0  # s with a store that does not answer: the record must not wait for it
_PATIENCE_WITH_WHO_IS_AWAY = 0.5


class ProgressFollower:
    """Context that logs the rows a worker appends to `progress.csv` in the partial record `folder`.

    Leave it before the record is completed; `log_record` then adds all other rows to the same run.
    An error inside ends the run as killed, unless its record is logged after all. Does nothing if
    the point has no MLflow store. `answers`: whether the store did, when it was asked last.
    """

    def __init__(self, folder: Path, config: PointConfig) -> None:
        self._folder = folder
        self._values, self._mlflow = config.values, config.measurement.mlflow
        self._tags = {
            "study": config.study,
            "key": config.key,
            "scheme": config.names["scheme"],
            "workers": str(config.values["workers"]),
            "status": "running",
        }
        self._log: PointLog | None = None
        self._num_logged, self.answers = 0, True
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="mlflow", daemon=True)

    def __enter__(self) -> "ProgressFollower":
        if self._mlflow.tracking_uri is not None:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stopped.set()
        if self._thread.is_alive():
            # beyond it, it ends with the process
            self._thread.join(_PATIENCE if self.answers else _PATIENCE_WITH_WHO_IS_AWAY)
        uri = self._mlflow.tracking_uri
        if kind is not None and uri is not None:
            with suppress(LogError), impatient():  # or MLflow shows the run as running
                end_lost_run(self._folder, uri)

    def _follow(self) -> None:
        if sys.platform == "linux":  # a thread has its own priority there: workers come first
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        started = time.time()
        with impatient():
            while not self._stopped.wait(_PERIOD):
                try:
                    self._open(started)
                    self._log_new_rows()
                    self.answers = True
                except LogError as error:  # rows stay in the file for the next try, or log_record
                    self.answers = error.is_busy
                except OSError:
                    continue

    def _open(self, started: float) -> None:
        if self._log is None:
            uri, experiment = self._mlflow.tracking_uri, self._mlflow.experiment
            assert uri is not None
            name, about = run_about(self._values, self._folder, uri)
            tags = about | self._tags
            log = PointLog.begin(uri, experiment, name, tags, started, patience=0)
            write_marker(self._folder, uri, log.run_id)
            self._log = log
            log.describe(flat_params(self._values), {})

    def _log_new_rows(self) -> None:
        uri = self._mlflow.tracking_uri
        assert self._log is not None
        assert uri is not None
        rows = live_rows(self._folder, self._num_logged)
        if rows:
            self._log.log(rows)
            self._num_logged += len(rows)
            write_marker(self._folder, uri, self._log.run_id, live_rows=self._num_logged)
