"""Points that run in jobs of a queue: submitted together, and told as they end."""

import sys
from collections.abc import Sequence

from paceline.record.point import Point
from paceline.record.reading import read_result, record_version
from paceline.record.tracking.log import log
from paceline.study.queue.jobs import last_words, log_of
from paceline.study.queue.submission import submit
from paceline.study.queue.waiting import ended
from paceline.study.status_line import result_line


def run_queued(points: Sequence[Point]) -> list[str]:
    """Submit points of one study, and wait for those that ask for it; print how each ended.

    Returns what has failed: points without a record, or whose record says so, or is not logged.
    """
    by_key = {point.config.key: point for point in points}
    versions = {key: record_version(point.config.folder) for key, point in by_key.items()}
    queued = submit(points, versions)
    jobs = queued.new | queued.earlier
    parts = [f"{len(queued.new)} points queued"]
    if queued.earlier:
        parts.append(f"{len(queued.earlier)} were already")
    numbers = sorted({job.split("_")[0] for job in jobs.values()}, key=int)
    print(f"{points[0].study}: {', '.join(parts)}; jobs {', '.join(numbers) or 'none'}", flush=True)

    def has_ended(key: str) -> bool:
        return record_version(by_key[key].config.folder) != versions[key]

    awaited = {key: job for key, job in jobs.items() if waits(by_key[key])}
    problems: list[str] = []
    try:
        for key in ended(points[0].study, awaited, has_ended):
            problem = _tell(by_key[key], jobs[key], has_ended(key))
            problems += [problem] if problem else []
    except KeyboardInterrupt:
        message = "its jobs go on, and the next sweep waits for them"
        print(
            f"paceline: {message}; paceline sweep {points[0].study} --cancel ends them",
            file=sys.stderr,
        )
        raise
    return problems


def waits(point: Point) -> bool:
    """Return whether somebody is to wait until the point has ended."""
    return point.cluster.submitted_to is not None and point.cluster.submitted_to.wait


def _tell(point: Point, job: str, has_ended: bool) -> str:
    """Print how the point ended, and log its record; return the problem, or ""."""
    config = point.config
    result = read_result(config.folder) if has_ended else None
    if result is None:
        path = log_of(config.folder.parent, job)
        problem = f"job {job} left the queue without a record: {last_words(path) or 'no word'}"
        print(f"paceline: {config.key}: {problem}; {path}", file=sys.stderr, flush=True)
        return problem
    print(result_line(None, config, result, f"job {job}"), flush=True)
    unlogged = log(config.folder, config.measurement.mlflow)
    return unlogged or (result["reason"] if result["status"] == "failed" else "")
