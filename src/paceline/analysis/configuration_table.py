"""Makes configurations.csv: a row for each configuration, with all that is concluded about it.

Parts of the table answer one question each, in the functions of `_PARTS`, which say what their
columns mean. A part is empty where its question does not arise.
"""

import pandas as pd

from paceline.analysis.comparison import block_ratio, comparison, fault
from paceline.analysis.configuration import configurations, counts
from paceline.analysis.equal_time import equal_time
from paceline.analysis.frames import Frame
from paceline.analysis.intervals import Interval, interval, not_negative
from paceline.analysis.phase_shares import phase_shares, staleness_spread
from paceline.analysis.predicted import predicted, predicted_exchange
from paceline.analysis.scaling import scaling
from paceline.analysis.statistics.space import POINTS, logit_of, variance_of_logit
from paceline.analysis.tables import Tables
from paceline.analysis.time_to_target import time_to_target
from paceline.record.numbers import Number, shown_numbers

NAME = "configurations"
_PARTS = (scaling, comparison, equal_time, time_to_target, phase_shares, staleness_spread)
_PARTS += (fault, block_ratio, predicted, predicted_exchange)


def configuration_table(tables: Tables) -> Frame:
    """Return one row per configuration, named by its kind, data set and axes.

    `n` counts its points, `n_finished`, `n_diverged` and `n_failed` those of each status. The means
    of all shown numbers (`measurement.numbers`) over finished seeds follow, and the columns of
    _PARTS. A mean has four columns: <name>_mean, <name>_low and <name>_high, the ends of its 95 %
    interval, empty if n is less than 2, and <name>_n, the number of observations, without points
    that lack the number. A number that no record of the study contains has no columns. Means of
    what is above 0 are geometric; those of accuracies are of their logits, and their intervals
    contain the draw of the scored images.
    """
    numbers = [number for number, _ in shown_numbers() if number.name in tables.runs]
    makers = [make(tables) for make in _PARTS]
    names = dict.fromkeys(["data", *tables.axes])
    rows = []
    for configuration, points in configurations(tables.runs, list(names)):
        row = configuration | {"n": len(points)} | counts(points)
        finished = points[points["status"] == "finished"]
        for number in numbers:
            row |= mean(number, finished).named(number.name)
        for make in makers:
            row |= make(configuration, points)
        rows.append(row)
    return pd.DataFrame(rows)


def known(table: Frame, column: str) -> Frame:
    """Return the rows of which a column is not empty; none if the table has no such column."""
    if column not in table:
        return table.iloc[:0].assign(**{column: None})
    return table[table[column].notna() & (table[column] != "")]


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
