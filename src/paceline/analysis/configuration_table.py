"""Makes configurations.csv: one row per configuration, with all conclusions about it."""

from functools import lru_cache

import pandas as pd

from paceline.analysis.comparison import compared
from paceline.analysis.configuration import Configuration, configurations, counts, finished
from paceline.analysis.frames import Frame, Row
from paceline.analysis.intervals import POINTS, Interval, interval, not_negative
from paceline.analysis.predicted import predicted, predicted_exchange
from paceline.analysis.tables import Tables
from paceline.analysis.time_to_target import time_to_target
from paceline.record.result import Number, shown_numbers

NAME = "configurations"
PHASES = {
    "seconds_compute": "compute",
    "seconds_communicate": "exchange",
    "seconds_data": "loading",
}


@lru_cache(maxsize=2)
def configuration_table(tables: Tables) -> Frame:
    """Return one row per configuration, identified by its kind, data set and axes.

    `n` is the number of its points; `n_finished`, `n_diverged` and `n_failed` are the numbers of
    points with each status. Then come the means over finished points of all numbers that
    record.result shows, and then the columns that are described at each function in _PARTS. A mean
    has four columns: <name>_mean, <name>_low and <name>_high (95 % interval, empty for a single
    observation), and <name>_n. Means of positive numbers are geometric.
    """
    numbers = [number for number in shown_numbers() if number.name in tables.runs]
    names = dict.fromkeys(["data", *tables.axes])
    rows = []
    for configuration, points in configurations(tables.runs, list(names)):
        row = configuration | {"n": len(points)} | counts(points)
        own = finished(points)
        for number in numbers:
            row |= mean(number, own).named(number.name)
        for part in _PARTS:
            row |= part(tables, configuration, points)
        rows.append(row)
    return pd.DataFrame(rows)


def known(table: Frame, column: str) -> Frame:
    """Return the rows that have a value in `column`; no rows if the table has no such column."""
    if column not in table:
        return table.iloc[:0].assign(**{column: None})
    return table[table[column].notna() & (table[column] != "")]


def mean(number: Number, points: Frame) -> Interval:
    """Return the mean of a number over points; the interval contains only possible values."""
    values = points[number.name].dropna().astype(float)
    return interval(values, POINTS if number.unit == "share" else not_negative(values))


def phase_shares(tables: Tables, _: Configuration, points: Frame) -> Row:
    """Return the columns on the phases of a step: compute, exchange (with waiting), and loading.

    `phase_<name>` is the share of the phase in the time of all workers. `phase_<name>_seconds` is
    its mean time per worker.
    """
    workers = tables.phases[tables.phases["key"].isin(finished(points)["key"])]
    if not len(workers):
        return {}
    seconds = workers[list(PHASES)].mean().rename(PHASES).add_prefix("phase_")
    return (seconds / seconds.sum()).to_dict() | seconds.add_suffix("_seconds").to_dict()


_PARTS = (compared, time_to_target, phase_shares, predicted, predicted_exchange)
