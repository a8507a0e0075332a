"""Groups points that differ only in their seed, and selects those of equal settings."""

from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from paceline.analysis.frames import Entry, Frame, Row

Configuration = Row  # kind and axes, each with its value
PROCESSES = "processes"
_SHARDS = "model.shards"
SPLIT = (_SHARDS, "model.split")  # axes that say how a worker's network is divided


def groups(table: Frame, columns: Sequence[str]) -> list[tuple[Row, Frame]]:
    """Split rows by their values of `columns`, in order of appearance; empty values are equal."""
    if not len(table):
        return []
    if not columns:
        return [({}, table)]
    grouped = table.groupby(list(columns), sort=False, dropna=False)
    return [(dict(zip(columns, values, strict=True)), rows) for values, rows in grouped]


def configurations(runs: Frame, axes: Sequence[str]) -> Iterator[tuple[Configuration, Frame]]:
    """Yield each kind and combination of `axes` with its points, in the order of `runs`."""
    yield from groups(runs, ["kind", *axes])


def counts(points: Frame) -> dict[str, int]:
    """Count the points of each status."""
    statuses = ("finished", "diverged", "failed")
    return {f"n_{status}": int((points["status"] == status).sum()) for status in statuses}


def finished(points: Frame) -> Frame:
    """Return the points that finished; only these enter a mean, others are counted."""
    return points[points["status"] == "finished"]


def num_processes(settings: Configuration | Frame) -> Entry:
    """Return the number of training processes, of one configuration or of each row."""
    return settings["workers"] * settings.get(_SHARDS, 1)


def size_of(situation: Configuration) -> int:
    """Return the number of workers of a situation, or of processes if workers may be split."""
    return int(situation.get("workers") or situation[PROCESSES])


def situation_columns(axes: Sequence[str]) -> list[str]:
    """Return the columns that identify a situation, within which schemes are compared.

    They are the kind, the data set, and those of `axes` that are not settings of the scheme. If
    workers may be split over processes, the situation has the number of all processes, and how many
    of them form a worker is a choice like the scheme.
    """
    own = [name for name in axes if name != "scheme" and not name.startswith("scheme.")]
    if _SHARDS in own:
        own = [PROCESSES if name == "workers" else name for name in own if name not in SPLIT]
    return list(dict.fromkeys(["kind", "data", *own]))


def with_processes(table: Frame) -> Frame:
    """Add the number of processes to each row, if workers may be split."""
    if _SHARDS not in table or "workers" not in table:
        return table
    return table.assign(**{PROCESSES: num_processes(table) if len(table) else []})


def one_process(configuration: Configuration) -> Configuration:
    """Return the settings of a configuration with one worker that is one process."""
    kept = {name: value for name, value in configuration.items() if name not in SPLIT}
    return kept | {"workers": 1} | ({_SHARDS: 1} if _SHARDS in configuration else {})


def matching(table: Frame, values: Mapping[str, Entry]) -> Frame:
    """Select the rows of `table` with these values; an empty value matches an empty one."""
    same = pd.Series(True, table.index)
    for name, value in values.items():
        same &= table[name].isna() if pd.isna(value) else table[name] == value
    return table[same]
