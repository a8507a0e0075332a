"""Lines about points: of a study, of what it costs by earlier records, and of one that ended."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from paceline.record.reading import read_result
from paceline.record.record import Result
from paceline.study.study_point import StudyPoint

Group = tuple[str | None, ...]  # names of scheme, model, data and cluster


def table(points: Sequence[StudyPoint]) -> str:
    """Format one line for each point: key, axes, status."""
    names = list(points[0].axes)
    rows = [["key", *names, "status"]]
    for point in points:
        values = [str(point.axes[name]) for name in names]
        rows.append([point.key, *values, point.status or "to do"])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return "\n".join(lines)


def counts(points: Sequence[StudyPoint]) -> str:
    """Format the number of points by status: `24 points: 20 finished, 1 diverged, 3 to do`."""
    states = [point.status or "to do" for point in points]
    parts = [
        f"{states.count(state)} {state}"
        for state in ("finished", "diverged", "failed", "to do")
        if state in states
    ]
    return f"{len(points)} points: {', '.join(parts)}"


def estimate(to_run: Sequence[StudyPoint], results: Sequence[Result], jobs: int) -> str:
    """Estimate time and memory of `to_run`, `jobs` points at a time, or report them as unknown.

    `results`: results of finished points of any study; `Costs` scales them.
    """
    if not to_run:
        return "nothing to run"
    costs = Costs(results)
    seconds = [costs.seconds(point) for point in to_run]
    known = [each for each in seconds if each is not None]
    if not known:
        return "time and memory: unknown until one point has run"
    rest = len(seconds) - len(known)
    more = f" and {rest} points of unknown length" if rest else ""
    peak = max(r.get("peak_rss_bytes") or 0 for point in to_run for r in costs.matching(point))
    processes = jobs * max(map(num_processes, to_run))
    memory = f"{processes * peak / 2**30:.1f} GiB of memory in {processes} processes"
    return f"about {duration(sum(known) / jobs)}{more}; up to {memory}"


def finished_results(runs: Path) -> list[Result]:
    """Read the result of every finished training of all studies in `runs`, by which to scale."""
    paths = sorted(runs.glob("[!.]*/[!.]*/result.json"))
    results = [result for path in paths if (result := read_result(path.parent))]
    return [each for each in results if each["status"] == "finished" and each.get("samples")]


def num_processes(point: StudyPoint) -> int:
    """Count the processes of a point: those that train, and those that serve."""
    return sum(point.point.num_processes)


class Costs:
    """Seconds that points take, by `results`: those of finished points of any study.

    Time is scaled by samples from points with the same scheme, model, data and cluster; of these
    from points of the same study, if any, since others may pace their steps; and of these from
    points with the same number of workers and batch size, if any.
    """

    def __init__(self, results: Iterable[Result]) -> None:
        self._by_names: dict[Group, list[Result]] = {}
        for result in results:
            self.add(result)

    def add(self, result: Result) -> None:
        self._by_names.setdefault(_group(result), []).append(result)

    def matching(self, point: StudyPoint) -> list[Result]:
        """Return the results with the point's scheme, model, data and cluster."""
        return self._by_names.get(_group(point.config.names), [])

    def seconds(self, point: StudyPoint) -> float | None:
        """Return the seconds that a run of the point takes; None without a result like it."""
        matching, values = self.matching(point), point.config.values
        sizes = {size: values[size] for size in ("workers", "batch_size")}
        own = [each for each in matching if each["study"] == values["study"]] or matching
        same = [each for each in own if all(each[size] == sizes[size] for size in sizes)]
        rates = [result["wall_seconds"] / result["samples"] for result in same or own]
        return median(rates) * _samples(values["training"], matching) if rates else None


def _group(names: Mapping[str, Any]) -> Group:
    return tuple(names.get(name) for name in ("scheme", "model", "data", "cluster"))


def _samples(training: Mapping[str, Any], matching: Sequence[Result]) -> float:
    if training["samples"] is not None:
        return training["samples"]
    return training["epochs"] * max(result["distinct_samples"] for result in matching)


def duration(seconds: float) -> str:
    """Format a duration in its own unit: `40 s`, `2.5 minutes`, `3.0 hours`."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 3600:.1f} hours" if seconds >= 3600 else f"{seconds / 60:.1f} minutes"
