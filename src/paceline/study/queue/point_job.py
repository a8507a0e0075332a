"""Job of a queue: points that follow each other in one allocation."""

import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from paceline.cluster.launcher import preload
from paceline.errors import SettingError
from paceline.record.point_config import PointConfig
from paceline.record.provenance import source_digest
from paceline.record.reading import record_version


@dataclass(frozen=True)
class PointJob:
    """Call of a job, which submitit pickles, and calls again when the job was queued again.

    `versions`: of the points' records when they were queued, which tell what has run since.
    `code`: digest of the source then; `root`: folder of the project. No job opens MLflow's store,
    which may be a file: whoever queued it logs the records.
    """

    configs: tuple[PointConfig, ...]
    versions: tuple[int | None, ...]
    code: str
    root: Path

    def __call__(self) -> None:
        """Run those points whose records are as they were. Exits with 2 if one could not run."""
        sys.path[:0] = [str(self.root), str(self.root / "src")]  # for a `_target_` of the user's
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # for all that this process starts: Slurm
        if os.environ.get("SLURM_JOB_NUM_NODES", "1") == "1":  # else agents start the processes
            preload()  # sends it to everybody, and a worker must not end before its launcher
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if source_digest() != self.code:
            message = f"the code was {self.code} when this was queued, and is {source_digest()}"
            raise SettingError("cluster", f"{message}: queue it again")
        told = [self._tell(*each) for each in zip(self.configs, self.versions, strict=True)]
        if any(told):
            sys.exit(2)

    def checkpoint(self) -> object:
        """Return what the job is to do when it is queued again: the same."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)

    def _tell(self, config: PointConfig, version: int | None) -> bool:
        """Run a point, and print how it ended; return whether a setting prevented it."""
        status, prevented = "has run before", False
        if record_version(config.folder) == version:
            try:
                status = _run(config)
            except SettingError as error:
                status, prevented = str(error), True
        print(f"paceline: {config.key}: {status}", flush=True)
        return prevented


def _run(config: PointConfig) -> str:
    from paceline.record.point import Point  # torch, while the forkserver imports it
    from paceline.run.run_point import run_point

    return run_point(Point.of(_without_store(config)), in_sweep=True).result["status"]


def _without_store(config: PointConfig) -> PointConfig:
    measurement = config.values["measurement"]
    mlflow = {**measurement["mlflow"], "tracking_uri": None}
    return config.replaced(measurement={**measurement, "mlflow": mlflow})
