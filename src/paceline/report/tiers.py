"""Says how far a scheme came in a situation, as tables, pages and the terminal show it."""

from collections.abc import Mapping
from typing import Any

NOT_JUDGED = "not judged"
MEANINGS = {
    "best": "the smallest time to the target",
    "tied": "not told from the best",
    "behind": "later than the best",
    "never": "no run reached the target",
    NOT_JUDGED: "behind or never there, but its best rate lies at an edge of what was tried",
}


def tier_of(row: Mapping[str, Any]) -> str:
    """Return the word of MEANINGS for a row of decision.csv, "" without a target.

    Nothing is said against a scheme whose best rate lies at an edge of what was tried.
    """
    tier = str(row["tier"])
    if tier in ("behind", "never") and is_at_edge(row):
        return NOT_JUDGED
    return tier if tier in MEANINGS else ""


def is_at_edge(row: Mapping[str, Any]) -> bool:
    """Return True if the best rate lies where a better one may lie beyond what was tried."""
    edge = row.get("at_edge")  # older tables have none
    return isinstance(edge, str) and edge != ""
