"""Points whose record another study has: a sweep copies it in place of training again."""

from collections.abc import Sequence
from pathlib import Path

from paceline.record.other_study import copy_record, record_elsewhere
from paceline.record.provenance import source_digest
from paceline.record.tracking.mlflow_record import MARKER
from paceline.study.study_points import StudyPoint


def to_take_over(points: Sequence[StudyPoint]) -> dict[str, Path]:
    """Return the folders of the records of other studies that stand for points, by their keys.

    `points`: those that need a run.
    """
    digest = source_digest()
    found = {
        point.key: record_elsewhere(point.folder, digest)
        for point in points
        if point.config.sweep.takes_over
    }
    return {key: folder for key, folder in found.items() if folder}


def take_over(points: Sequence[StudyPoint]) -> None:
    """Copy what `to_take_over` finds for `points`, and print a line for each."""
    found = to_take_over(points)
    for point in points:
        if point.key in found:
            source = found[point.key]
            copy_record(source, point.folder, point.config, without=[MARKER])
            print(f"{point.key} {point.words}: taken over from {source.parent.name}", flush=True)
