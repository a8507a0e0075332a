"""One row per configuration: how many points of which status, and means over the finished ones."""

import pandas as pd

from paceline.analysis.configuration import configurations
from paceline.analysis.intervals import interval
from paceline.analysis.tables import Frame, Tables
from paceline.measurement.numbers import shown_numbers

STATUSES = ("finished", "diverged", "failed")


def summary(tables: Tables) -> Frame:
    """Average the numbers that are shown over the seeds that finished.

    `top1` is of validation. A number's own n leaves out points that lack it; a number that no
    record of the study knows has no columns.
    """
    names = [number.name for number, _ in shown_numbers() if number.name in tables.runs]
    rows = []
    for configuration, points in configurations(tables.runs, tables.axes):
        row = configuration | {"n": len(points)} | counts(points)
        finished = points[points["status"] == "finished"]
        for name in names:
            row |= interval(finished[name]).named(name)
        rows.append(row)
    return pd.DataFrame(rows)


def counts(points: Frame) -> dict[str, int]:
    """Count the points of each status."""
    return {f"n_{status}": int((points["status"] == status).sum()) for status in STATUSES}
