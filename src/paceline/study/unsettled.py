"""Points that a sweep leaves open: without a record, or made to fail by what is around them."""

import sys
from collections.abc import Sequence

from paceline.record.reading import read_result
from paceline.record.rerun import failed_by_environment
from paceline.study.study_points import StudyPoint


def unsettled(points: Sequence[StudyPoint]) -> list[StudyPoint]:
    """Return the points without a record, or which the machine or the network made fail."""
    results = [(point, read_result(point.folder)) for point in points]
    return [point for point, found in results if found is None or failed_by_environment(found)]


def tell_unsettled(points: Sequence[StudyPoint], among: int) -> None:
    """Print in one line how many points are unsettled, and why the first is."""
    reasons = [point.result["reason"] for point in points if point.result]
    why = f" ({reasons[0]})" if reasons else ""
    message = f"{len(points)} of {among} points failed by what is around them{why}"
    print(f"paceline: {message}; the next sweep runs them again", file=sys.stderr, flush=True)
