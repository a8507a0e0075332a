"""Numbers of a study, a dozen, which `dvc metrics diff` compares between versions of the code."""

import pandas as pd

from paceline.analysis.configuration import groups, situation_columns
from paceline.analysis.summary import counts
from paceline.analysis.tables import Frame, Row, Tables


def metrics(tables: Tables, summary: Frame, decision: Frame) -> Row:
    """Count the points of a study and its decisions, and give the best of its means.

    `n_decided`: situations of which one scheme is best, and none tied with it. `best_speedup` is
    that of the best of all schemes, and has `best_speedup_workers`. A number that does not exist is
    left out.
    """
    numbers = {
        "n": len(tables.runs),
        **counts(tables.runs),
        "n_missing": len(tables.about["missing"]),
        **_decisions(tables, decision),
        "best_test_top1": _short(summary["test_top1_mean"].max()),
        "best_images_per_second": _short(summary["images_per_second_mean"].max()),
    }
    return {name: value for name, value in numbers.items() if not pd.isna(value)}


def _decisions(tables: Tables, decision: Frame) -> Row:
    if not len(decision):
        return {"n_situations": 0, "n_decided": 0}
    tiers = [list(of["tier"]) for _, of in groups(decision, situation_columns(tables.axes))]
    numbers: Row = {
        "n_situations": len(tiers),
        "n_decided": sum("best" in each and "tied" not in each for each in tiers),
    }
    best = decision[(decision["tier"] == "best") & decision["speedup_mean"].notna()]
    if len(best):
        row = best.loc[best["speedup_mean"].astype(float).idxmax()]
        numbers["best_speedup"] = _short(row["speedup_mean"])
        numbers["best_speedup_workers"] = int(row["workers"])
    return numbers


def _short(value: float) -> float:
    return float(f"{value:.6g}")
