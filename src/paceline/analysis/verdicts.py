"""Judges differences between schemes, and between many workers and one.

Two schemes differ only if the interval of their difference, paired by seed, excludes "no
difference", and if their own intervals do not overlap.
"""

from collections.abc import Iterator
from typing import Literal

import pandas as pd

from paceline.analysis.comparison import comparison
from paceline.analysis.configuration import groups, matching, num_processes
from paceline.analysis.scaling import scaling
from paceline.analysis.summary import summary
from paceline.analysis.tables import Frame, Row, Tables, as_written

Verdict = Literal["higher", "lower", "not told apart", "one seed", "unknown", "every seed diverged"]
_NUMBERS = ("mean", "low", "high", "n")


def verdicts(tables: Tables) -> Frame:
    """Return one row per configuration and question. The column `what` is the question:

    - diverged: every seed of the configuration diverged, so that no mean exists;
    - scheme: `metric` is compared with that of the scheme `against`, by a ratio (images/s) or by a
      difference (top-1; unknown if no seed has a top-1 under both schemes);
    - workers: the images/s are compared with those of one worker of the same scheme, by a ratio.

    `most_workers` is 1 if no row of equal scheme and settings has more workers. `mean`, `low`,
    `high` and `n` are those of the ratio or difference.
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
        yield _configuration(tables, row) | verdict


def _schemes(tables: Tables, means: Frame) -> Iterator[Row]:
    rows = as_written(comparison(tables))
    rows = rows[rows["speed_ratio_mean"].notna()] if len(rows) else rows
    for row, most in _with_most_workers(tables, rows):
        about = {"what": "scheme", "against": row["reference"], "most_workers": most}
        about |= _configuration(tables, row)
        split = "test_top1" if pd.notna(row["test_top1_difference_mean"]) else "top1"
        for metric, name in (("images_per_second", "speed_ratio"), (split, f"{split}_difference")):
            verdict = _verdict(tables, means, row, name, metric)
            yield about | {"metric": metric, "verdict": verdict} | _numbers(row, name)


def _workers(tables: Tables) -> Iterator[Row]:
    """Yield the rows of the question "workers".

    Only baselines of the same scheme are used; the table of scaling has the others, too.
    """
    rows = as_written(scaling(tables))
    rows = rows[(num_processes(rows) > 1) & rows["speedup_mean"].notna()]
    rows = rows[rows["baseline_scheme"] == rows["scheme"]]
    for row, most in _with_most_workers(tables, rows):
        about = {"what": "workers", "against": row["scheme"], "metric": "images_per_second"}
        about |= {"most_workers": most, "verdict": _interval_verdict(row, "speedup", 1.0)}
        yield _configuration(tables, row) | about | _numbers(row, "speedup")


def _verdict(tables: Tables, means: Frame, row: Frame, name: str, metric: str) -> Verdict:
    verdict = _interval_verdict(row, name, 1.0 if name == "speed_ratio" else 0.0)
    if verdict in ("higher", "lower") and _own_intervals_overlap(tables, means, row, metric):
        return "not told apart"
    return verdict


def _interval_verdict(row: Frame, name: str, no_difference: float) -> Verdict:
    """Judge the interval of `name` without those of the two schemes."""
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    if pd.isna(low):
        return "unknown" if pd.isna(row[f"{name}_mean"]) else "one seed"
    if low <= no_difference <= high:
        return "not told apart"
    return "higher" if low > no_difference else "lower"


def _own_intervals_overlap(tables: Tables, means: Frame, row: Frame, metric: str) -> bool:
    configuration = _configuration(tables, row)
    both = [
        matching(means, configuration | {"scheme": scheme}).iloc[0]
        for scheme in (row["scheme"], row["reference"])
    ]
    low, high = (max(b[f"{metric}_low"] for b in both), min(b[f"{metric}_high"] for b in both))
    return not low > high


def _with_most_workers(tables: Tables, rows: Frame) -> Iterator[tuple[Frame, int]]:
    """Yield the rows setting by setting, each with 1 if it has the most workers, else 0."""
    for _, same in groups(rows, ["kind", *tables.facets, "scheme"]) if len(rows) else []:
        for _, row in same.iterrows():
            yield row, int(row["workers"] == same["workers"].max())


def _configuration(tables: Tables, row: Frame) -> Row:
    return {name: row[name] for name in ("kind", *tables.axes)}


def _numbers(row: Frame, name: str) -> Row:
    return {number: row[f"{name}_{number}"] for number in _NUMBERS}
