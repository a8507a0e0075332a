"""Tables of conclusions of a study, and the functions that derive them from its points."""

from collections.abc import Callable
from typing import NamedTuple

import pandas as pd

from paceline.analysis.clocks import clock_agreement, clocks
from paceline.analysis.configuration import counts, groups, situation_columns, size_of
from paceline.analysis.configuration_table import NAME, configuration_table
from paceline.analysis.decision import best_and_faster, decision
from paceline.analysis.frames import Frame, Row
from paceline.analysis.points import points
from paceline.analysis.predicted import predicted_comparisons
from paceline.analysis.searches import tuning_curve
from paceline.analysis.tables import Tables


class Conclusion(NamedTuple):
    """Table of conclusions that `make` derives from a study; it is written to tables/`name`.csv.

    If `exact` is True, numbers are written with all digits, because charts are drawn from them;
    else they are rounded.
    """

    name: str
    make: Callable[[Tables], Frame]
    exact: bool = False


CONCLUSIONS = [
    Conclusion(NAME, configuration_table),
    Conclusion("decision", decision),
    Conclusion("points", points, exact=True),
    Conclusion("clocks", clocks),
    Conclusion("clock_agreement", clock_agreement),
    Conclusion("predicted_comparisons", predicted_comparisons),
    Conclusion("tuning_curve", tuning_curve),
]
FOLDER = "tables"  # name of their folder in the report of a study


def metrics(tables: Tables, configurations: Frame, decided: Frame) -> Row:
    """Return the numbers that `dvc metrics diff` compares, without those that have no value.

    `n_situations` is the number of situations with several workers and several schemes. `n_decided`
    is the number of these situations in which the best scheme is shown to be faster than one
    worker, and no other scheme is tied with it. `best_speedup` is the largest speed-up of a best
    scheme that is shown to be faster than one worker, and `best_speedup_workers` the number of
    workers of that scheme.
    """
    numbers: Row = {"n": len(tables.runs)} | counts(tables.runs)
    numbers |= {"n_missing": len(tables.about["missing"])} | _decisions(tables, decided)
    for name in ("test_top1", "images_per_second"):
        numbers[f"best_{name}"] = _short(configurations[f"{name}_mean"].max())
    return {name: value for name, value in numbers.items() if not pd.isna(value)}


def _decisions(tables: Tables, decided: Frame) -> Row:
    if not len(decided):
        return {"n_situations": 0, "n_decided": 0}
    faster = best_and_faster(decided)
    found = [
        own
        for situation, own in groups(decided, situation_columns(tables.axes))
        if len(own) > 1 and size_of(situation) > 1
    ]
    clear = [own for own in found if "tied" not in list(own["tier"])]
    numbers: Row = {
        "n_situations": len(found),
        "n_decided": sum(any(own.index.isin(faster.index)) for own in clear),
    }
    shown = faster[faster["speedup_mean"].notna()]
    if len(shown):
        row = shown.loc[shown["speedup_mean"].astype(float).idxmax()]
        numbers["best_speedup"] = _short(row["speedup_mean"])
        numbers["best_speedup_workers"] = int(row["workers"])
    return numbers


def _short(value: float) -> float:
    return float(f"{value:.6g}")
