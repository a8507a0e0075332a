"""Makes the table of crossovers in scale on the page of a study."""

import math

import pandas as pd

from paceline.analysis.tables import Frame
from paceline.report.findings import StudyFindings
from paceline.report.number_format import MISSING
from paceline.report.table import Table, cell, concluded_table


def crossovers(findings: StudyFindings) -> Table:
    """Say from how many workers on a scheme is sooner at the target than the reference."""
    cells = {
        "against": cell("reference", str),
        "sooner from": lambda row: _judged(row, _place(row["ahead_from"], row)),
        "95 % interval": lambda row: _judged(
            row, f"{_place(row['ahead_from_low'], row)} to {_place(row['ahead_from_high'], row)}"
        ),
        "compared at": lambda row: f"{row['least']} to {row['most']} workers",
    }
    caption = (
        "The number of workers from which a scheme reaches the target before the reference, where "
        "its advantage rises with their number; numbers at which a run of either did not reach it "
        "are left out. By a bootstrap of the logarithms of times with one variance."
    )
    return concluded_table(findings, "crossovers", "Crossovers in scale", caption, cells)


def _judged(row: Frame, text: str) -> str:
    return "not judged: its best trial lies at an edge" if row["at_edge"] else text


def _place(workers: float, row: Frame) -> str:
    """Format a crossover between the numbers of workers that were compared, or beyond them."""
    if pd.isna(workers):
        return MISSING
    if not workers:
        return f"{row['least']} or fewer"
    return f"more than {row['most']}" if math.isinf(workers) else f"{workers:.3g}"
