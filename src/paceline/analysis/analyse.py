"""Tables of points in, tables of conclusions out."""

import json
import math
from pathlib import Path
from typing import Any

from paceline.analysis.clocks import clocks
from paceline.analysis.comparison import comparison
from paceline.analysis.equal_time import equal_time
from paceline.analysis.scaling import scaling
from paceline.analysis.summary import counts, summary
from paceline.analysis.tables import Frame, Tables, read_tables, write_table
from paceline.analysis.time_to_target import targets, time_to_target

TABLES = {
    "summary": summary,
    "scaling": scaling,
    "comparison": comparison,
    "time_to_target": time_to_target,
    "equal_time": equal_time,
    "clocks": clocks,
}
_SHOWN = ("images_per_second", "top1", "test_top1")


def analyse(folder: Path) -> None:
    """Write a CSV for each of TABLES, if only its header, and metrics.json.

    `folder`: reports/<study>, as `paceline collect` left it. Same tables in, same bytes out.
    Raises SettingError("study") where they are not there.
    """
    tables = read_tables(folder)
    made = {name: make(tables) for name, make in TABLES.items()}
    for name, table in made.items():
        write_table(folder / f"{name}.csv", table)
    metrics = _metrics(tables, made["summary"], made["scaling"])
    (folder / "metrics.json").write_text(json.dumps(metrics, indent=1, allow_nan=False) + "\n")


def _metrics(tables: Tables, means: Frame, speedups: Frame) -> dict[str, Any]:
    """For `dvc metrics show`: the numbers one looks at between two versions of the code."""
    metrics: dict[str, Any] = {"n": len(tables.runs), **counts(tables.runs)}
    metrics["n_missing"] = len(tables.about["missing"])
    for _, goal in targets(tables).iterrows():
        metrics.setdefault(goal["kind"], {})[f"target top1 {goal['data']}"] = _short(goal["target"])
    for (_, row), (_, speedup) in zip(means.iterrows(), speedups.iterrows(), strict=True):
        shown = {name: row[f"{name}_mean"] for name in _SHOWN} | {
            "speedup": speedup["speedup_mean"]
        }
        known = {name: _short(value) for name, value in shown.items() if not math.isnan(value)}
        name = " ".join(f"{axis}={row[axis]}" for axis in tables.axes)
        metrics.setdefault(row["kind"], {})[name] = {"n": int(row["n_finished"])} | known
    return metrics


def _short(value: float) -> float:
    return float(f"{value:.6g}")
