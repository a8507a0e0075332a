"""Says on what the workers of a configuration spend their time, and how stale their pushes are."""

from collections.abc import Callable

import numpy as np

from paceline.analysis.configuration import Configuration, RowOf
from paceline.analysis.frames import Frame, Row
from paceline.analysis.tables import Tables

PHASES = {
    "seconds_compute": "compute",
    "seconds_communicate": "exchange",
    "seconds_data": "loading",
}
_QUANTILES = {"low": 0.05, "median": 0.5, "high": 0.95}


def phase_shares(tables: Tables) -> RowOf:
    """Return what fills the columns on phases, of configurations with a finished point.

    `phase_<name>` is a share of the seconds of all workers, `phase_<name>_seconds` are those of the
    mean worker: compute, exchange with waiting for others, and loading, waiting for samples.
    """
    of_finished = _selector(tables.phases)

    def row(_: Configuration, points: Frame) -> Row:
        workers = of_finished(points)
        if not len(workers):
            return {}
        seconds = workers[list(PHASES)].mean().rename(PHASES).add_prefix("phase_")
        return (seconds / seconds.sum()).to_dict() | seconds.add_suffix("_seconds").to_dict()

    return row


def staleness_spread(tables: Tables) -> RowOf:
    """Return what fills the columns on staleness [updates], of configurations with pushes.

    `pushes` counts those that servers applied, of all finished seeds; `pushes_mean`, `_low`,
    `_median` and `_high` are their mean and the quantiles _QUANTILES.
    """
    of_finished = _selector(tables.staleness)

    def row(_: Configuration, points: Frame) -> Row:
        own = of_finished(points)
        if not len(own):
            return {}
        counts = own.groupby("staleness")["pushes"].sum().sort_index()
        values, number = counts.index.to_numpy(float), counts.to_numpy(float)
        total = number.sum()
        row = {"pushes": total, "pushes_mean": float(values @ number / total)}
        return row | {f"pushes_{n}": _quantile(values, number, at) for n, at in _QUANTILES.items()}

    return row


def _selector(table: Frame) -> Callable[[Frame], Frame]:
    """Return what selects the rows of the finished ones of some points."""
    places = table.groupby("key").indices

    def select(points: Frame) -> Frame:
        keys = points.loc[points["status"] == "finished", "key"]
        found = [places[key] for key in keys if key in places]
        return table.iloc[np.sort(np.concatenate(found)) if found else []]

    return select


def _quantile(values: np.ndarray, number: np.ndarray, at: float) -> float:
    """Return the smallest value that at least the share `at` of all does not exceed."""
    return float(values[int(np.searchsorted(number.cumsum(), at * number.sum() * (1 - 1e-12)))])
