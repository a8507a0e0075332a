"""What `dvc metrics show` and `dvc plots show` print of a study."""

import math
from typing import Any

import pandas as pd

from paceline.analysis.study import Study

_SUMMARY = ("images_per_second", "top1", "test_top1", "validation_loss", "seconds")
_SCALING = ("speedup", "efficiency")


def metrics(study: Study, summary: pd.DataFrame, scaling: pd.DataFrame) -> dict[str, Any]:
    """Counts of points, then kind -> configuration -> number. Missing numbers are left out."""
    counts = study.runs["status"].value_counts()
    points = {status: int(counts.get(status, 0)) for status in ("finished", "diverged", "failed")}
    found: dict[str, Any] = {"points": points | {"missing": len(study.about["missing"])}}
    for table, names in ((summary, _SUMMARY), (scaling, _SCALING)):
        for row in table.to_dict("records"):
            cells = {name: row[f"{name}_mean"] for name in names if _is_number(row[f"{name}_mean"])}
            entry = found.setdefault(row["kind"], {}).setdefault(series(study, row, "workers"), {})
            entry |= cells | ({"n": row["n_finished"]} if "n_finished" in row else {})
    return found


def wide(study: Study, summary: pd.DataFrame, metric: str) -> pd.DataFrame:
    """One row per number of workers, one column of means per configuration: lines of a plot."""
    names = [series(study, row) for row in summary.to_dict("records")]
    kinds = summary["kind"].astype(str)
    labels = [
        f"{name} ({kind})" if kinds.nunique() > 1 else name
        for name, kind in zip(names, kinds, strict=True)
    ]
    long = pd.DataFrame(
        {"workers": summary["workers"], "series": labels, metric: summary[f"{metric}_mean"]}
    )
    table = long.pivot(index="workers", columns="series", values=metric)
    return table[list(dict.fromkeys(labels))].reset_index()


def series(study: Study, row: dict, *more: str) -> str:
    """A configuration in one word, for example `sync_allreduce/batch_size=32/workers=2`."""
    settings = [name for name in study.configuration[2:] if name != "kind"]
    parts = [f"{name}={row[name]}" for name in (*settings, *more)]
    return "/".join([str(row["scheme"]), *parts])


def _is_number(value: Any) -> bool:
    return value is not None and not math.isnan(value)
