"""One line of the table."""

from statistics import median
from typing import Any


def row(
    name: str, ours: float, theirs: float, unit: str, ratio: float, target: str, holds: bool
) -> dict[str, Any]:
    return {
        "name": name,
        "ours": ours,
        "theirs": theirs,
        "unit": unit,
        "ratio": ratio,
        "target": target,
        "holds": holds,
    }


def ratio_row(
    name: str, ours: list[float], theirs: list[float], unit: str, least: float
) -> dict[str, Any]:
    """Ratio of the medians of two series that were measured by turns."""
    ratio = median(ours) / median(theirs)
    return row(name, median(ours), median(theirs), unit, ratio, f">= {least}", ratio >= least)
