"""Tiers of schemes by their time to the target. This file imports nothing that takes long."""

from collections.abc import Mapping
from typing import Any

NOT_JUDGED = "not judged"
MEANINGS = {
    "best": "the shortest mean time to the target",
    "tied": "not significantly different from the best",
    "behind": "later than the best, or missed the target in some runs, and the best in none",
    "never": "no run reached the target",
    NOT_JUDGED: "behind or never, but its best rate is at the edge of the search range",
}


def tier_of(row: Mapping[str, Any]) -> str:
    """Return the key of MEANINGS that applies to a row of decision.csv; "" without a target.

    A scheme whose best learning rate is at the edge of the search range is called NOT_JUDGED
    instead of behind or never, because a better rate may lie outside the range.
    """
    tier = str(row["tier"])
    if tier in ("behind", "never") and row["at_edge"]:
        return NOT_JUDGED
    return tier if tier in MEANINGS else ""
