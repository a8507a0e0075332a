"""Everything that a page says about a study, read once from its tables."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from paceline.analysis.clocks import clock_axes
from paceline.analysis.equal_time import at_equal_budgets
from paceline.analysis.tables import Frame, Tables, read_table, read_tables, require
from paceline.analysis.time_to_target import first_crossing, targets


@dataclass(frozen=True)
class Findings:
    """`tables`: what was collected; the others: what `paceline analyse` made of it.

    `tuning`: tuning.csv, without rows where no rate was tuned, or before there was tuning.
    `points`: a row per point, with its `speedup` and `efficiency` against one worker of its seed,
    the `target` and `target_seconds` of its task, and its `top1_equal_time` and
    `top1_equal_updates`; NaN where there is none.
    """

    tables: Tables
    summary: Frame
    scaling: Frame
    comparison: Frame
    time_to_target: Frame
    equal_time: Frame
    clocks: Frame
    tuning: Frame
    points: Frame

    @property
    def varying(self) -> list[str]:
        """Axes besides scheme, workers and seed that take more than one value, and that the kind
        of a number does not tell already."""
        runs, told = self.tables.runs, self.told_by_kind
        axes = [axis for axis in self.tables.facets if axis not in told]
        return [axis for axis in axes if runs[axis].nunique(dropna=False) > 1]

    @property
    def told_by_kind(self) -> list[str]:
        """Axes of the cluster that have one value for each kind of several."""
        kinds = self.tables.runs.groupby("kind")
        if len(kinds) < 2:
            return []
        axes = clock_axes(self.tables)
        return [axis for axis in axes if kinds[axis].nunique(dropna=False).max() == 1]

    @property
    def schemes(self) -> list[str]:
        return list(dict.fromkeys(self.tables.runs["scheme"]))


def read_findings(folder: Path) -> Findings:
    """Raises SettingError("study") that names what to run first."""
    tables = read_tables(folder)
    first = f"paceline analyse {folder.name}"
    names = ("summary", "scaling", "comparison", "time_to_target", "equal_time", "clocks")
    made = {name: read_table(require(folder / f"{name}.csv", first)) for name in names}
    tuning = folder / "tuning.csv"
    tuned = read_table(tuning) if tuning.is_file() else pd.DataFrame()
    return Findings(tables=tables, tuning=tuned, points=_points(tables), **made)


def groups(table: Frame, columns: list[str]) -> list[tuple[dict[str, Any], Frame]]:
    """Rows with equal `columns`, in order of appearance; an empty value equals another."""
    grouped = table.groupby(columns, sort=False, dropna=False)
    return [(dict(zip(columns, values, strict=True)), rows) for values, rows in grouped]


def _points(tables: Tables) -> Frame:
    finished = tables.finished
    match = [name for name in ("kind", *tables.axes, "seed") if name != "workers"]
    one = finished.loc[finished["workers"] == 1, [*match, "images_per_second"]]
    points = tables.runs.merge(one, how="left", on=match, suffixes=("", "_alone"))
    rate = points["images_per_second"].where(points["status"] == "finished").astype(float)
    points["speedup"] = rate / points["images_per_second_alone"].astype(float)
    points["efficiency"] = points["speedup"] / points["workers"]
    goals = targets(tables)[["kind", "data", "target"]]
    points = points.merge(goals, how="left", on=["kind", "data"])
    points["target_seconds"] = [_seconds(tables, row) for _, row in points.iterrows()]
    points = points.merge(at_equal_budgets(tables).drop(columns="top1"), how="left", on="key")
    return points


def _seconds(tables: Tables, point: Any) -> float:
    curve = tables.curves[tables.curves["key"] == point["key"]]
    crossing = None if pd.isna(point["target"]) else first_crossing(curve, point["target"])
    return crossing[0] if crossing else math.nan
