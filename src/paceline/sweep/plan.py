"""What a sweep is about to do, and what it may cost, by the records of points already run."""

from collections.abc import Sequence
from statistics import median

from paceline.sweep.points import Point


def table(points: Sequence[Point]) -> str:
    """One line per point: key, axes, status."""
    names = list(points[0].axes)
    rows = [["key", *names, "status"]]
    for point in points:
        values = [str(point.axes[name]) for name in names]
        rows.append([point.key, *values, point.status or "to do"])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return "\n".join(lines)


def counts(points: Sequence[Point]) -> str:
    """For example `24 points: 20 finished, 1 diverged, 3 to do`."""
    states = [point.status or "to do" for point in points]
    parts = [
        f"{states.count(state)} {state}"
        for state in ("finished", "diverged", "failed", "to do")
        if state in states
    ]
    return f"{len(points)} points: {', '.join(parts)}"


def estimate(points: Sequence[Point], to_run: Sequence[Point], jobs: int) -> str:
    """Hours and memory of `to_run`, `jobs` points at a time; unknown rather than invented."""
    seconds = [_seconds(point, points) for point in to_run]
    known = [each for each in seconds if each is not None]
    if not known and to_run:
        return "hours and memory: unknown until one point has run"
    rest = len(seconds) - len(known)
    more = f" and {rest} points of unknown length" if rest else ""
    return f"about {sum(known) / 3600 / jobs:.2g} hours{more}; {_memory(points, to_run, jobs)}"


def num_processes(point: Point) -> int:
    return point.config["workers"] + point.config["scheme"].get("servers", 0)


def _seconds(point: Point, points: Sequence[Point]) -> float | None:
    """By the nearest finished points with the same scheme, model, data and cluster."""
    unit, budget = _budget(point)
    alike = [
        other
        for other in points
        if other.result
        and other.status == "finished"
        and other.config["names"] == point.config["names"]
        and _budget(other)[0] == unit
    ]
    sizes = ("workers", "batch_size")
    same = [o for o in alike if all(o.config[s] == point.config[s] for s in sizes)]
    rates = [o.result["wall_seconds"] / _budget(o)[1] for o in same or alike if o.result]
    return median(rates) * budget if rates else None


def _budget(point: Point) -> tuple[str, float]:
    training = point.config["training"]
    unit = "epochs" if training["samples"] is None else "samples"
    return unit, training[unit]


def _memory(points: Sequence[Point], to_run: Sequence[Point], jobs: int) -> str:
    seen = [p.result["peak_rss_bytes"] for p in points if p.result and p.result["peak_rss_bytes"]]
    if not seen:
        return "memory: unknown"
    processes = jobs * max(map(num_processes, to_run), default=0)
    return f"up to {processes * max(seen) / 2**30:.1f} GiB of memory in {processes} processes"
