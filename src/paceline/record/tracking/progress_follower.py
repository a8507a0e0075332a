"""Live logging of a running point to MLflow by a thread of its launcher."""

import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from paceline.record.point_config import PointConfig
from paceline.record.tracking.log import end_lost_run, live_rows, name_record, run_about
from paceline.record.tracking.mlflow_log import LogError, PointLog, flat_params

_PERIOD = 1.0  # seconds
_PATIENCE = 10.0  # s, for which a run waits at its end for a store that does not answer
_PATIENCE_WITH_A_LOST_STORE = 0.5


class ProgressFollower:
    """Context that logs the rows a worker appends to `progress.csv` in the partial record `folder`.

    Leave it before the record is completed; `log_record` then adds all other rows to the same run.
    An error inside ends the run as killed, unless its record is logged after all. Does nothing if
    the point has no MLflow store. `answers`: whether the store did, when it was asked last.
    """

    def __init__(self, folder: Path, config: PointConfig) -> None:
        self._folder = folder
        self._values, mlflow = config.values, config.measurement.mlflow
        self._uri, self._experiment = mlflow.tracking_uri, mlflow.experiment
        self._tags = {
            "study": config.study,
            "key": config.key,
            "scheme": config.names["scheme"],
            "workers": str(config.values["workers"]),
            "status": "running",
        }
        self.answers = True
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="mlflow", daemon=True)

    def __enter__(self) -> "ProgressFollower":
        if self._uri is not None:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stopped.set()
        if self._thread.is_alive():  # after this patience, it ends with the process
            self._thread.join(_PATIENCE if self.answers else _PATIENCE_WITH_A_LOST_STORE)
        if kind is not None and self._uri is not None:
            with suppress(LogError):  # MLflow then shows the run as running
                end_lost_run(self._folder, self._uri)

    def _follow(self) -> None:
        if sys.platform == "linux":  # a thread has its own priority there: workers come first
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        started, log, num_logged = time.time(), None, 0
        while not self._stopped.wait(_PERIOD):
            try:
                log = log or self._begin(started)
                rows = live_rows(self._folder, num_logged)
                log.log(rows)
                num_logged += len(rows)
                self.answers = True
            except LogError as error:  # rows stay in the file for the next try, or log_record
                self.answers = error.answered
            except OSError:
                continue

    def _begin(self, started: float) -> PointLog:
        assert self._uri is not None
        name, about = run_about(self._values, self._folder, self._uri)
        tags = about | self._tags
        log = PointLog.begin(self._uri, self._experiment, name, tags, started, timeout=0)
        name_record(self._folder, self._uri, log.run_id)
        log.describe(flat_params(self._values), {})
        return log
