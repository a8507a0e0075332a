"""Summarises each configuration: counts of points by status, and means over the finished ones."""

import pandas as pd

from paceline.analysis.configuration import configurations
from paceline.analysis.intervals import interval
from paceline.analysis.tables import Frame, Tables
from paceline.measurement.numbers import shown_numbers

STATUSES = ("finished", "diverged", "failed")


def summary(tables: Tables) -> Frame:
    """Return one row per configuration with the means of all shown numbers over finished seeds.

    `top1` is that of validation. The n of a number leaves out points without it. A number that no
    record of the study contains has no columns.
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
