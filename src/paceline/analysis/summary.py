"""One row per configuration: how many points of which status, and means over the finished ones."""

import pandas as pd

from paceline.analysis.configuration import configurations
from paceline.analysis.intervals import interval
from paceline.analysis.tables import Frame, Tables

METRICS = ("images_per_second", "top1", "test_top1", "validation_loss", "seconds", "staleness_mean")
REAL = (
    "real_seconds",
    "real_images_per_second",
)  # by a wall clock, always
STATUSES = ("finished", "diverged", "failed")


def summary(tables: Tables) -> Frame:
    """`top1` is of validation. A metric's own n leaves out finished points that lack it."""
    metrics = [*METRICS, *(name for name in REAL if name in tables.runs)]
    rows = []
    for configuration, points in configurations(tables.runs, tables.axes):
        row = configuration | {"n": len(points)} | counts(points)
        finished = points[points["status"] == "finished"]
        for metric in metrics:
            row |= interval(finished.get(metric, ())).named(metric)
        rows.append(row)
    return pd.DataFrame(rows)


def counts(points: Frame) -> dict[str, int]:
    return {f"n_{status}": int((points["status"] == status).sum()) for status in STATUSES}
