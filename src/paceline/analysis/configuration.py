"""Points that differ in nothing but their seed, and pairs of points that share it."""

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from paceline.analysis.tables import Frame

Configuration = dict[str, Any]


def configurations(runs: Frame, axes: Sequence[str]) -> Iterator[tuple[Configuration, Frame]]:
    """Each configuration with its points, in the order of `runs`; a kind is never mixed with
    another."""
    names = ["kind", *axes]
    for values, points in runs.groupby(names, sort=False, dropna=False):
        yield dict(zip(names, values, strict=True)), points


def matching(runs: Frame, configuration: Configuration) -> Frame:
    """Points of `runs` with these values; an empty value matches an empty one."""
    same = pd.Series(True, runs.index)
    for name, value in configuration.items():
        same &= runs[name].isna() if pd.isna(value) else runs[name] == value
    return runs[same]


def paired(points: Frame, baseline: Frame, metric: str) -> Frame:
    """Columns `value` and `base` of `metric`, a row per seed that both have."""
    sides = [
        side.set_index("seed")[metric].rename(name)
        for side, name in ((points, "value"), (baseline, "base"))
    ]
    return pd.concat(sides, axis=1, join="inner").dropna().astype(float)
