"""Numbers of a study, a dozen, which `dvc metrics diff` compares between versions of the code."""

import pandas as pd

from paceline.analysis.configuration import counts, groups, situation_columns, size_of
from paceline.analysis.decision import is_faster
from paceline.analysis.frames import Frame, Row
from paceline.analysis.tables import Tables


def metrics(tables: Tables, configurations: Frame, decision: Frame) -> Row:
    """Count the points of a study and its decisions, and give the best of its means.

    `n_situations`: those of several workers with several schemes to choose from. `n_decided`: those
    of them in which one scheme is shown to be faster than one worker, and none tied with it.
    `best_speedup` is the largest that is shown, and has `best_speedup_workers`. A number that does
    not exist is left out.
    """
    numbers = {
        "n": len(tables.runs),
        **counts(tables.runs),
        "n_missing": len(tables.about["missing"]),
        **_decisions(tables, decision),
        "best_test_top1": _short(configurations["test_top1_mean"].max()),
        "best_images_per_second": _short(configurations["images_per_second_mean"].max()),
    }
    return {name: value for name, value in numbers.items() if not pd.isna(value)}


def _decisions(tables: Tables, decision: Frame) -> Row:
    if not len(decision):
        return {"n_situations": 0, "n_decided": 0}
    best = decision[decision["tier"] == "best"]
    faster = [index for index, row in best.iterrows() if is_faster(row)]
    shown = best.loc[faster]
    found = [
        own
        for situation, own in groups(decision, situation_columns(tables.axes))
        if len(own) > 1 and size_of(situation) > 1
    ]
    numbers: Row = {
        "n_situations": len(found),
        "n_decided": sum(
            any(own.index.isin(faster)) and "tied" not in list(own["tier"]) for own in found
        ),
    }
    shown = shown[shown["speedup_mean"].notna()]
    if len(shown):
        row = shown.loc[shown["speedup_mean"].astype(float).idxmax()]
        numbers["best_speedup"] = _short(row["speedup_mean"])
        numbers["best_speedup_workers"] = int(row["workers"])
    return numbers


def _short(value: float) -> float:
    return float(f"{value:.6g}")
