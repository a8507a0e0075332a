"""Tells which measured runs were disturbed, so that their times are longer than their work."""

from collections.abc import Mapping
from typing import Any

BUSY = 0.1  # CPU time of other programs, as a share of the cores of a run
STOPPED = 0.01  # of the seconds of a run


def disturbance(result: Mapping[str, Any]) -> str:
    """Return in words what disturbed a run beyond BUSY and STOPPED; "" if nothing is known to.

    `result`: content of its result.json, or its row in runs.csv. Times on the virtual clock follow
    from a model, so that nothing disturbs them.
    """
    if result["kind"] == "virtual":
        return ""
    others, stopped = (float(result.get(n) or 0) for n in ("load_of_others", "stopped_seconds"))
    words = list[str]()
    if others > BUSY:
        words.append(f"other programs took as much CPU time as {100 * others:.0f} % of its cores")
    if stopped > STOPPED * float(result.get("wall_seconds") or 0):
        words.append(f"a process stood still for {stopped:.1f} s")
    return " and ".join(words)
