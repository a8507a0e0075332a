"""What a sweep is about to do, and what it may cost, by the records of points already run."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from paceline.study.study_points import StudyPoint

Result = Mapping[str, Any]  # result.json


def table(points: Sequence[StudyPoint]) -> str:
    """One line per point: key, axes, status."""
    names = list(points[0].axes)
    rows = [["key", *names, "status"]]
    for point in points:
        values = [str(point.axes[name]) for name in names]
        rows.append([point.key, *values, point.status or "to do"])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return "\n".join(lines)


def counts(points: Sequence[StudyPoint]) -> str:
    """For example `24 points: 20 finished, 1 diverged, 3 to do`."""
    states = [point.status or "to do" for point in points]
    parts = [
        f"{states.count(state)} {state}"
        for state in ("finished", "diverged", "failed", "to do")
        if state in states
    ]
    return f"{len(points)} points: {', '.join(parts)}"


def estimate(to_run: Sequence[StudyPoint], results: Sequence[Result], jobs: int) -> str:
    """Time and memory of `to_run`, `jobs` points at a time; unknown rather than invented.

    `results`: of finished points of any study. Time is scaled by samples from points with the same
    scheme, model, data and cluster, of the same workers and batch size where there are some.
    """
    if not to_run:
        return "nothing to run"
    seconds = [_seconds(point, _alike(point, results)) for point in to_run]
    known = [each for each in seconds if each is not None]
    if not known:
        return "time and memory: unknown until one point has run"
    rest = len(seconds) - len(known)
    more = f" and {rest} points of unknown length" if rest else ""
    peak = max(r["peak_rss_bytes"] for point in to_run for r in _alike(point, results))
    processes = jobs * max(map(num_processes, to_run))
    memory = f"{processes * peak / 2**30:.1f} GiB of memory in {processes} processes"
    return f"about {_duration(sum(known) / jobs)}{more}; up to {memory}"


def finished_results(runs: Path) -> list[Result]:
    """`result.json` of every finished point in `runs`, whatever its study."""
    results = [json.loads(path.read_text()) for path in sorted(runs.glob("*/[!.]*/result.json"))]
    return [result for result in results if result["status"] == "finished"]


def num_processes(point: StudyPoint) -> int:
    """Return how many processes a point takes: those that train, and those that serve."""
    return sum(point.point.num_processes)


def _alike(point: StudyPoint, results: Sequence[Result]) -> list[Result]:
    names = point.config.names.items()
    return [result for result in results if all(result[name] == value for name, value in names)]


def _seconds(point: StudyPoint, alike: Sequence[Result]) -> float | None:
    sizes = ("workers", "batch_size")
    same = [result for result in alike if all(result[s] == point.config.values[s] for s in sizes)]
    rates = [result["wall_seconds"] / result["samples"] for result in same or alike]
    return median(rates) * _samples(point, alike) if rates else None


def _samples(point: StudyPoint, alike: Sequence[Result]) -> float:
    training = point.point.training
    if training.samples is not None:
        return training.samples
    return training.epochs * max(result["distinct_samples"] for result in alike)


def _duration(seconds: float) -> str:
    return f"{seconds / 3600:.1f} hours" if seconds >= 3600 else f"{seconds / 60:.1f} minutes"
