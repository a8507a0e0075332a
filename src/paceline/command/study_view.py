"""View of one study in the terminal: its configurations, decisions, failures, and what is next."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from paceline.command.decision_table import decision_table
from paceline.command.plain_table import plain_table
from paceline.record.tracking.log import run_label
from paceline.study.overview import collected_rows, next_command, num_of_other_code, running
from paceline.study.preview import counts
from paceline.study.study_point import StudyPoint
from paceline.study.study_points import study_points
from paceline.study.watch import read_progress

_MOST = 20  # lines on points that did not finish


def study_view(study: str, root: Path) -> Iterator[RenderableType]:
    """Yield what there is of a study; records in runs/ count, else those that were collected."""
    points = _with_collected(study_points(study, root), root, study)
    question = points[0].config.question
    if question:
        yield question
    yield _configurations(points, _shares(root, study))
    yield f"{study}: {counts(points)}"
    num_other = num_of_other_code(point.result for point in points if point.result)
    if num_other:
        yield f"of other code: {num_other}; sweep.rerun=stale runs them again"
    decided = decision_table(root / "reports" / study / "tables/decision.csv")
    if decided is not None:
        yield decided
    yield from _unfinished(points)
    complete = all(point.result for point in points)
    yield f"next: {next_command(study, root, complete=complete)}"


def _with_collected(points: list[StudyPoint], root: Path, study: str) -> list[StudyPoint]:
    if any(point.result for point in points):
        return points
    rows = [_result(row) for row in collected_rows(root, study)]
    if len(rows) == len(points):  # in the order of the study, which knows no key of a tuned point
        for point, row in zip(points, rows, strict=True):
            point.result = row
        return points
    by_key = {row["key"]: row for row in rows}
    for point in points:
        point.result = by_key.get(point.key)
    return points


def _result(row: Mapping[str, str]) -> dict[str, Any]:
    number = {name: float(row[name]) if row.get(name) else None for name in ("top1", "test_top1")}
    return {**row, **number}


def _shares(root: Path, study: str) -> dict[str, float]:
    """Return the share that is done of each point under way, by key."""
    found = {key: read_progress(path) for key, path in running(root, study).items()}
    return {key: progress.share if progress else 0.0 for key, progress in found.items()}


def _configurations(points: Sequence[StudyPoint], shares: Mapping[str, float]) -> Table:
    names = [name for name in points[0].axes if name != "seed"]
    grouped: dict[tuple[str, ...], list[StudyPoint]] = {}
    for point in points:
        grouped.setdefault(tuple(str(point.axes[name]) for name in names), []).append(point)
    headings = [*names, ">done", "status", ">top-1, test"]
    return plain_table(headings, [[*axes, *_state(of, shares)] for axes, of in grouped.items()])


def _state(points: Sequence[StudyPoint], shares: Mapping[str, float]) -> list[str]:
    states = [point.status for point in points]
    done = len(states) - states.count(None)
    words = [
        f"{states.count(state)} {state}" for state in ("diverged", "failed") if state in states
    ]
    under_way = [f"{shares[point.key]:.0%}" for point in points if point.key in shares]
    if under_way:
        words.append(f"running {', '.join(under_way)}")
    scores = [
        result["test_top1"]
        for point in points
        if (result := point.result) and result.get("test_top1") and point.status == "finished"
    ]
    best = f"{100 * mean(scores):.2f} %" if scores else ""
    return [f"{done} of {len(points)}", ", ".join(words), best]


def _unfinished(points: Sequence[StudyPoint]) -> Iterator[str]:
    bad = [point for point in points if point.status in ("diverged", "failed")]
    for point in bad[:_MOST]:
        assert point.result is not None
        name = run_label(point.config.values, list(point.axes))
        yield f"{point.status} {point.key}: {name}: {point.result['reason']}"
    if len(bad) > _MOST:
        yield f"and {len(bad) - _MOST} more"
