"""Averages the seconds that workers spend in each phase, with few and with many workers."""

from collections.abc import Sequence

import pandas as pd

from paceline.analysis.axes import varying
from paceline.analysis.configuration import groups
from paceline.analysis.tables import Frame, Tables

PHASES = ["seconds_data", "seconds_compute", "seconds_communicate"]
EACH = 4  # largest number of workers that have a row each
ALL = "all"


def phase_seconds(tables: Tables) -> Frame:
    """Return the mean seconds of each phase over finished seeds.

    The table covers the fewest and the most workers with finished points, for each scheme and
    setting. There is one row per worker, or a single row with `worker` ALL for more than EACH
    workers.
    """
    axes = ["kind", *tables.axes]
    runs = ends_of_scale(tables, tables.finished)
    table = tables.phases[["key", "worker", *PHASES]].merge(runs[["key", *axes]], on="key")
    rows = []
    for group, same in groups(table, axes):
        averaged = group["workers"] > EACH
        for worker, part in [(ALL, same)] if averaged else same.groupby("worker"):
            rows.append(group | {"worker": worker} | dict(part[PHASES].mean()))
    return pd.DataFrame(rows, columns=[*axes, "worker", *PHASES])


def ends_of_scale(tables: Tables, runs: Frame) -> Frame:
    """Select the runs with the fewest and with the most workers of their scheme and setting.

    The new column `most` is True for the latter.
    """
    setting: Sequence[str] = ["scheme", "kind", *varying(tables)]
    workers = runs.groupby(setting, dropna=False)["workers"]
    runs = runs.assign(most=runs["workers"] == workers.transform("max"))
    return runs[runs["most"] | (runs["workers"] == workers.transform("min"))]
