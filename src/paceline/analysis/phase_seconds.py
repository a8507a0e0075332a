"""Averages where the seconds of workers go, at the ends of the scale."""

from collections.abc import Sequence

import pandas as pd

from paceline.analysis.axes import varying
from paceline.analysis.configuration import groups
from paceline.analysis.tables import Frame, Tables

PHASES = ["seconds_data", "seconds_compute", "seconds_communicate"]
EACH = 4  # workers up to which each has a row of its own
ALL = "all"


def phase_seconds(tables: Tables) -> Frame:
    """Return mean seconds over finished seeds, at the fewest and the most workers that finished.

    A row per worker; with more than EACH workers one row, whose `worker` is ALL.
    """
    axes = ["kind", *tables.axes]
    runs = ends_of_scale(tables, tables.finished)
    table = tables.phases[["key", "worker", *PHASES]].merge(runs[["key", *axes]], on="key")
    rows = []
    for where, same in groups(table, axes):
        several = where["workers"] > EACH
        for worker, own in [(ALL, same)] if several else same.groupby("worker"):
            rows.append(where | {"worker": worker} | dict(own[PHASES].mean()))
    return pd.DataFrame(rows, columns=[*axes, "worker", *PHASES])


def ends_of_scale(tables: Tables, runs: Frame) -> Frame:
    """Select the runs with the fewest and with the `most` workers of their scheme and setting."""
    setting: Sequence[str] = ["scheme", "kind", *varying(tables)]
    workers = runs.groupby(setting, dropna=False)["workers"]
    runs = runs.assign(most=runs["workers"] == workers.transform("max"))
    return runs[runs["most"] | (runs["workers"] == workers.transform("min"))]
