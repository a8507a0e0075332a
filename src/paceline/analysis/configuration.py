"""Groups points that differ in nothing but their seed, and pairs points that share it."""

from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from paceline.analysis.tables import Entry, Frame, Row

Configuration = Row  # kind and axes, each with its value


def groups(table: Frame, columns: Sequence[str]) -> list[tuple[Row, Frame]]:
    """Split rows by equal `columns`, in order of appearance; an empty value equals another."""
    grouped = table.groupby(list(columns), sort=False, dropna=False)
    return [(dict(zip(columns, values, strict=True)), rows) for values, rows in grouped]


def configurations(runs: Frame, axes: Sequence[str]) -> Iterator[tuple[Configuration, Frame]]:
    """Yield each configuration with its points, in the order of `runs`.

    A kind of number is never mixed with another.
    """
    yield from groups(runs, ["kind", *axes])


def matching(table: Frame, values: Mapping[str, Entry]) -> Frame:
    """Select the rows of `table` with these values; an empty value matches an empty one."""
    same = pd.Series(True, table.index)
    for name, value in values.items():
        same &= table[name].isna() if pd.isna(value) else table[name] == value
    return table[same]


def paired(points: Frame, baseline: Frame, metric: str) -> Frame:
    """Return columns `value` and `base` of `metric`, a row per seed that both have."""
    sides = [
        side.set_index("seed")[metric].rename(name)
        for side, name in ((points, "value"), (baseline, "base"))
    ]
    return pd.concat(sides, axis=1, join="inner").dropna().astype(float)
