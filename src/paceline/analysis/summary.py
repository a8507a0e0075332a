"""Summarises each configuration: counts of points by status, and means over the finished ones."""

import pandas as pd

from paceline.analysis.configuration import configurations
from paceline.analysis.frames import Frame
from paceline.analysis.intervals import Interval, interval, not_negative
from paceline.analysis.statistics.space import POINTS, logit_of, variance_of_logit
from paceline.analysis.tables import Tables
from paceline.measurement.numbers import Number, shown_numbers

STATUSES = ("finished", "diverged", "failed")


def summary(tables: Tables) -> Frame:
    """Return one row per configuration with the means of all shown numbers over finished seeds.

    `top1` is that of validation. The n of a number leaves out points without it. A number that no
    record of the study contains has no columns. Means of what is above 0 are geometric; those of
    accuracies are of their logits, and their intervals contain the draw of the scored images.
    """
    numbers = [number for number, _ in shown_numbers() if number.name in tables.runs]
    rows = []
    for configuration, points in configurations(tables.runs, tables.axes):
        row = configuration | {"n": len(points)} | counts(points)
        finished = points[points["status"] == "finished"]
        for number in numbers:
            row |= mean(number, finished).named(number.name)
        rows.append(row)
    return pd.DataFrame(rows)


def mean(number: Number, points: Frame) -> Interval:
    """Return the mean of a number over points, with an interval that does not leave its range."""
    values = points[number.name].dropna().astype(float)
    images = points[number.of].dropna() if number.of in points else []
    if len(values) and len(images):
        least = int(min(images))
        return interval(values, logit_of(least), float(variance_of_logit(values.mean(), least)))
    if number.unit == "share":
        return interval(values, POINTS)  # of records that do not say how many images were scored
    return interval(values, not_negative(values))


def counts(points: Frame) -> dict[str, int]:
    """Count the points of each status."""
    return {f"n_{status}": int((points["status"] == status).sum()) for status in STATUSES}
