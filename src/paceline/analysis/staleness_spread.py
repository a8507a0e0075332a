"""Describes the distribution of staleness of each configuration, over seeds and servers."""

import numpy as np
import pandas as pd

from paceline.analysis.configuration import groups
from paceline.analysis.frames import Frame
from paceline.analysis.tables import Tables

_QUANTILES = {"low": 0.05, "median": 0.5, "high": 0.95}


def staleness_spread(tables: Tables) -> Frame:
    """Return one row per configuration with pushes, of finished seeds.

    `low`, `median` and `high` are the 5, 50 and 95 % quantiles of their staleness, `mean` its mean
    [updates]; `pushes` counts them.
    """
    axes = ["kind", "data", *tables.axes]
    pushes = tables.staleness.merge(tables.finished[["key", *axes]], on="key")
    rows = [
        configuration | _described(same.groupby("staleness")["pushes"].sum().sort_index())
        for configuration, same in (groups(pushes, axes) if len(pushes) else [])
    ]
    return pd.DataFrame(rows, columns=[*axes, "pushes", "mean", *_QUANTILES])


def _described(counts: pd.Series) -> dict[str, float]:
    values, number = counts.index.to_numpy(float), counts.to_numpy(float)
    total = number.sum()
    return {
        "pushes": total,
        "mean": float(values @ number / total),
        **{name: _quantile(values, number, at) for name, at in _QUANTILES.items()},
    }


def _quantile(values: np.ndarray, number: np.ndarray, at: float) -> float:
    """Return the smallest value that at least the share `at` of all does not exceed."""
    return float(values[int(np.searchsorted(number.cumsum(), at * number.sum() * (1 - 1e-12)))])
