"""Run of a study in MLflow while its sweep goes on."""

import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from paceline.record.measurement import MLflow
from paceline.record.tracking.log import begin_study_run, end_study_run, log
from paceline.study.study_point import StudyPoint


@dataclass
class Ending:
    """End of a sweep: `status` of its run in MLflow, and the number of points by theirs."""

    status: str = "FAILED"
    numbers: dict[str, float] = field(default_factory=dict)

    def count(self, points: Sequence[StudyPoint]) -> None:
        """Count the records of all points; a study with all of them has finished."""
        states = [point.status or "missing" for point in points]
        self.status = "FAILED" if "missing" in states else "FINISHED"
        self.numbers = {
            f"points/{state}": states.count(state)
            for state in ("finished", "diverged", "failed", "missing")
        }


@contextmanager
def logged_study(points: Sequence[StudyPoint], folder: Path, mlflow: MLflow) -> Generator[Ending]:
    """Give the study of `points` a run in MLflow inside, and yield how it is to end.

    `folder`: of its records. If MLflow does not answer, one line says so, and the sweep goes on.
    """
    question = points[0].config.question
    tags = {"study": folder.name} | ({"mlflow.note.content": question} if question else {})
    _tell(begin_study_run(folder, mlflow, list(points[0].axes), tags))
    ending = Ending()
    try:
        yield ending
    except BaseException:
        ending.status = "KILLED"
        raise
    finally:
        _tell(end_study_run(folder, mlflow, ending.status, ending.numbers))


def log_missing(points: Sequence[StudyPoint]) -> None:
    """Log the records that MLflow lacks; print the reason of the first failure, and stop there."""
    for point in points:
        unlogged = log(point.folder, point.config.measurement.mlflow) if point.result else None
        if unlogged:
            message = f"paceline: {unlogged}; the next sweep logs the records again"
            print(message, file=sys.stderr)
            return


def _tell(problem: str | None) -> None:
    if problem:
        print(f"paceline: measurement.mlflow.tracking_uri: {problem}", file=sys.stderr)
