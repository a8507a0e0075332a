"""Groups points (single runs) by configuration, and selects points with given settings.

Points of one configuration differ only in their seed.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from paceline.analysis.frames import Entry, Frame, Row

Configuration = Row  # kind and axes, each with its value
PROCESSES = "processes"
NOT_TRAINED = ("diverged", "untrained")  # statuses of runs that count as diverged
OPTIMIZER = "model/optimizer"
BUDGETS = ("training.samples", "training.epochs")
_SHARDS = "model.shards"
SPLIT = (_SHARDS, "model.split")  # axes that say how a worker's network is divided


def groups(table: Frame, columns: Sequence[str]) -> list[tuple[Row, Frame]]:
    """Split rows by their values of `columns`, in the order in which the values first appear.

    Returns pairs of the values and their rows. Two empty values count as equal.
    """
    if not len(table):
        return []
    if not columns:
        return [({}, table)]
    grouped = table.groupby(list(columns), sort=False, dropna=False)
    return [(dict(zip(columns, values, strict=True)), rows) for values, rows in grouped]


def configurations(runs: Frame, axes: Sequence[str]) -> Iterator[tuple[Configuration, Frame]]:
    """Yield each combination of a kind and values of `axes` with its points, in order of `runs`."""
    yield from groups(runs, ["kind", *axes])


def counts(points: Frame) -> dict[str, int]:
    """Count the points that finished, that diverged or did not train, and that failed."""
    statuses = {"finished": ["finished"], "diverged": [*NOT_TRAINED], "failed": ["failed"]}
    return {f"n_{n}": int(points["status"].isin(own).sum()) for n, own in statuses.items()}


def finished(points: Frame) -> Frame:
    """Return the points that finished; means contain only these, and other points are counted."""
    return points[points["status"] == "finished"]


def num_processes(settings: Configuration | Frame) -> Entry:
    """Return the number of training processes of one configuration, or of each row of a table."""
    return settings["workers"] * settings.get(_SHARDS, 1)


def size_of(situation: Configuration) -> int:
    """Return the number of workers of a situation; of processes if workers may have several."""
    return int(situation.get("workers") or situation[PROCESSES])


def is_of_scheme(name: str) -> bool:
    """Return True for the scheme and its settings, which include the optimizer it trains with."""
    return name.split(".")[0] in ("scheme", OPTIMIZER)


def situation_columns(axes: Sequence[str]) -> list[str]:
    """Return the columns that identify a situation: the settings under which schemes are compared.

    They are the kind, the data set, and those of `axes` that are not settings of the scheme. If the
    study splits some workers over several processes, the column with the number of workers is
    replaced by the number of all processes. How many of the processes form one worker is then
    compared like a scheme.
    """
    own = [name for name in axes if not is_of_scheme(name)]
    if _SHARDS in own:
        own = [PROCESSES if name == "workers" else name for name in own if name not in SPLIT]
    return list(dict.fromkeys(["kind", "data", *own]))


def with_processes(table: Frame) -> Frame:
    """Add a column with the number of processes, if the table has a column for split workers."""
    if _SHARDS not in table or "workers" not in table:
        return table
    return table.assign(**{PROCESSES: num_processes(table) if len(table) else []})


def matching(table: Frame, values: Mapping[str, Entry]) -> Frame:
    """Select the rows of `table` with these values; an empty value matches only an empty cell."""
    same = np.ones(len(table), bool)
    for name, value in values.items():
        column = table[name]
        same &= (column.isna() if pd.isna(value) else column == value).to_numpy(bool)
    return table[same]
