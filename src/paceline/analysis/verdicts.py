"""Decides what the numbers tell apart: scheme against scheme, and many workers against one.

Two schemes are told apart only if the interval of their difference, paired by seed, leaves out "no
difference", and their own intervals do not overlap.
"""

from collections.abc import Iterator
from typing import Literal

import pandas as pd

from paceline.analysis.comparison import comparison
from paceline.analysis.configuration import groups, matching
from paceline.analysis.scaling import scaling
from paceline.analysis.summary import summary
from paceline.analysis.tables import Frame, Row, Tables, as_written

Verdict = Literal["higher", "lower", "not told apart", "one seed", "unknown", "every seed diverged"]
_NUMBERS = ("mean", "low", "high", "n")


def verdicts(tables: Tables) -> Frame:
    """Return a row per configuration and question. `what` is asked:

    - diverged: where every seed did, and so no mean exists;
    - scheme: whether `metric` is higher or lower than that of the scheme `against`, by a ratio
      (images/s) or a difference (top-1; unknown where no seed of both has one);
    - workers: whether images/s of these workers are higher than those of one of the same scheme,
      by a ratio.

    `most_workers`: 1 where no row of equal scheme and settings has more workers. `mean` to `n`: of
    the ratio or difference.
    """
    means = as_written(summary(tables))
    rows = [
        *_diverged(tables, means),
        *_schemes(tables, means),
        *_workers(tables),
    ]
    columns = ["what", "kind", *tables.axes, "against", "metric", "verdict", "most_workers"]
    return pd.DataFrame(rows, columns=[*columns, *_NUMBERS])


def _diverged(tables: Tables, means: Frame) -> Iterator[Row]:
    for _, row in means[means["n_diverged"] == means["n"]].iterrows():
        verdict = {"what": "diverged", "verdict": "every seed diverged", "n": row["n"]}
        yield _where(tables, row) | verdict


def _schemes(tables: Tables, means: Frame) -> Iterator[Row]:
    rows = as_written(comparison(tables))
    rows = rows[rows["speed_ratio_mean"].notna()] if len(rows) else rows
    for row, most in _with_most_workers(tables, rows):
        about = {"what": "scheme", "against": row["reference"], "most_workers": most}
        about |= _where(tables, row)
        split = "test_top1" if pd.notna(row["test_top1_difference_mean"]) else "top1"
        for metric, name in (("images_per_second", "speed_ratio"), (split, f"{split}_difference")):
            verdict = _verdict(tables, means, row, name, metric)
            yield about | {"metric": metric, "verdict": verdict} | _numbers(row, name)


def _workers(tables: Tables) -> Iterator[Row]:
    """Compare with runs of the same scheme alone; the table of scaling has the others."""
    rows = as_written(scaling(tables))
    rows = rows[(rows["workers"] > 1) & rows["speedup_mean"].notna()]
    rows = rows[rows["baseline_scheme"] == rows["scheme"]]
    for row, most in _with_most_workers(tables, rows):
        about = {"what": "workers", "against": row["scheme"], "metric": "images_per_second"}
        about |= {"most_workers": most, "verdict": _beside(row, "speedup", 1.0)}
        yield _where(tables, row) | about | _numbers(row, "speedup")


def _verdict(tables: Tables, means: Frame, row: Frame, name: str, metric: str) -> Verdict:
    verdict = _beside(row, name, 1.0 if name == "speed_ratio" else 0.0)
    if verdict in ("higher", "lower") and _own_intervals_overlap(tables, means, row, metric):
        return "not told apart"
    return verdict


def _beside(row: Frame, name: str, no_difference: float) -> Verdict:
    """Judge the interval of `name` alone."""
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    if pd.isna(low):
        return "unknown" if pd.isna(row[f"{name}_mean"]) else "one seed"
    if low <= no_difference <= high:
        return "not told apart"
    return "higher" if low > no_difference else "lower"


def _own_intervals_overlap(tables: Tables, means: Frame, row: Frame, metric: str) -> bool:
    where = _where(tables, row)
    both = [
        matching(means, where | {"scheme": scheme}).iloc[0]
        for scheme in (row["scheme"], row["reference"])
    ]
    low, high = (max(b[f"{metric}_low"] for b in both), min(b[f"{metric}_high"] for b in both))
    return not low > high


def _with_most_workers(tables: Tables, rows: Frame) -> Iterator[tuple[Frame, int]]:
    """Yield the rows setting by setting, each with 1 if none has more workers, else 0."""
    for _, same in groups(rows, ["kind", *tables.facets, "scheme"]) if len(rows) else []:
        for _, row in same.iterrows():
            yield row, int(row["workers"] == same["workers"].max())


def _where(tables: Tables, row: Frame) -> Row:
    return {name: row[name] for name in ("kind", *tables.axes)}


def _numbers(row: Frame, name: str) -> Row:
    return {number: row[f"{name}_{number}"] for number in _NUMBERS}
