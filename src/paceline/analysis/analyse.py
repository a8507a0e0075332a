"""Tables of conclusions of a study, and the functions that derive them from its points."""

from collections.abc import Callable
from typing import NamedTuple

import pandas as pd

from paceline.analysis.clocks import clock_agreement, clocks
from paceline.analysis.configuration import counts
from paceline.analysis.configuration_table import NAME, configuration_table
from paceline.analysis.decision import decision
from paceline.analysis.frames import Frame, Row
from paceline.analysis.predicted import predicted_comparisons
from paceline.analysis.tables import Tables


class Conclusion(NamedTuple):
    """Table of conclusions that `make` derives from a study; it is written to tables/`name`.csv."""

    name: str
    make: Callable[[Tables], Frame]


CONCLUSIONS = [
    Conclusion(NAME, configuration_table),
    Conclusion("decision", decision),
    Conclusion("clocks", clocks),
    Conclusion("clock_agreement", clock_agreement),
    Conclusion("predicted_comparisons", predicted_comparisons),
]
FOLDER = "tables"  # name of their folder in the report of a study


def metrics(tables: Tables, configurations: Frame) -> Row:
    """Return the numbers that `dvc metrics diff` compares, without those that have no value."""
    numbers: Row = {"n": len(tables.runs)} | counts(tables.runs)
    numbers["n_missing"] = len(tables.about["missing"])
    for name in ("test_top1", "images_per_second"):
        numbers[f"best_{name}"] = float(f"{configurations[f'{name}_mean'].max():.6g}")
    return {name: value for name, value in numbers.items() if not pd.isna(value)}
