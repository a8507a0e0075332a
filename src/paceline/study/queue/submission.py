"""Submission of points to Slurm by submitit: an array for all points of the same needs."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from paceline.cluster.cluster import SlurmQueue
from paceline.errors import SettingError
from paceline.record.point import Point
from paceline.record.provenance import source_digest
from paceline.record.reading import record_version
from paceline.record.record import Lock
from paceline.run.run_point import prepare_data
from paceline.study.queue.jobs import (
    cancel,
    living_jobs,
    log_folder,
    name_of,
    read_jobs,
    write_jobs,
)
from paceline.study.queue.point_job import PointJob
from paceline.study.queue.shared_folder import check_shared

_SIGNAL_SECONDS = 90  # before the limit, in which a point can write a checkpoint


class Queued(NamedTuple):
    """Jobs of points by key: `new` ones, and those that an earlier submission left there."""

    new: dict[str, str]
    earlier: dict[str, str]


def has_queue(point: Point) -> bool:
    """Return True if points like this one run in jobs of a queue."""
    return point.cluster.submitted_to is not None


def submit(points: Sequence[Point], versions: Mapping[str, int | None]) -> Queued:
    """Submit those points of one study that are not in the queue, and have not run since.

    `versions`: of their records, by key, when the caller looked. Raises SettingError before
    anything is submitted if Slurm cannot run all of them.
    """
    study, folder = points[0].study, points[0].config.folder.parent
    if shutil.which("sbatch") is None:
        raise SettingError("cluster", "there is no sbatch here: cluster=slurm needs Slurm")
    lock = Lock(folder / ".submit.lock")
    folder.mkdir(parents=True, exist_ok=True)
    lock.acquire(patience=-1)
    try:
        earlier = _earlier(study, folder)
        new = [
            point
            for point in points
            if point.config.key not in earlier
            and record_version(point.config.folder) == versions[point.config.key]
        ]
        return Queued(_submit(new, study, folder), earlier)
    finally:
        lock.release()


def _earlier(study: str, folder: Path) -> dict[str, str]:
    """Return the living jobs by the keys of their points; a job without any is cancelled.

    Who submitted it was killed before it told which points it has.
    """
    living = living_jobs(study)
    if living is None:
        raise SettingError("cluster", "squeue does not answer: is this a cluster under Slurm?")
    known = {key: job for key, job in read_jobs(folder).items() if job in living}
    cancel(set(living) - set(known.values()))
    return known


def _submit(points: Sequence[Point], study: str, folder: Path) -> dict[str, str]:
    groups = list(_by_needs(points))
    executors = [_executor(study, folder, needs, members) for needs, members in groups]
    for executor in executors:
        _check(executor)
    if groups:
        check_shared(folder, groups[0][0])
    for data in {str(point.data): point.data for point in points}.values():
        prepare_data(data)  # once, and where there is a network
    jobs: dict[str, str] = {}
    for executor, (_, members) in zip(executors, groups, strict=True):
        made = _submit_array(executor, members)
        write_jobs(folder, made)
        jobs |= made
    return jobs


def _by_needs(points: Sequence[Point]) -> Iterator[tuple[dict[str, Any], list[list[Point]]]]:
    """Yield what jobs ask for, and the points of each job that asks for the same."""
    needs: dict[str, dict[str, Any]] = {}
    members: dict[str, list[Point]] = {}
    for point in points:
        own = point.cluster.needs_of(*point.num_processes)
        own["points_per_job"] = _queue(point).points_per_job
        text = json.dumps(own, sort_keys=True)
        needs[text] = own
        members.setdefault(text, []).append(point)
    for text, alike in members.items():
        size = needs[text].pop("points_per_job")
        yield needs[text], [alike[first : first + size] for first in range(0, len(alike), size)]


def _queue(point: Point) -> SlurmQueue:
    assert point.cluster.submitted_to is not None
    return point.cluster.submitted_to


def _executor(
    study: str, folder: Path, needs: Mapping[str, Any], members: Sequence[Sequence[Point]]
) -> Any:
    import submitit

    # exec, so that the signal before the limit reaches Python in place of the batch shell
    executor = submitit.SlurmExecutor(log_folder(folder), python=f"exec {sys.executable}")
    arguments = {"signal": f"B:USR2@{_SIGNAL_SECONDS}", **needs["additional_parameters"]}
    own = {"job_name": name_of(study), "use_srun": False, "stderr_to_stdout": True}
    executor.update_parameters(**{**needs, **own, "additional_parameters": arguments})
    return executor


def _check(executor: Any) -> None:
    """Raise SettingError if Slurm would not run such a job, now or later.

    Plain sbatch accepts more nodes than there are, and the job waits for ever.
    """
    text = executor._make_submission_file_text("true", "")
    done = subprocess.run(
        ["sbatch", "--test-only"], input=text, capture_output=True, text=True, check=False
    )
    if done.returncode and not ("not available" in done.stderr and _some_are_away()):
        raise _refused(done.stderr, executor)


def _some_are_away() -> bool:
    """Return True if nodes are drained or down, for which a job may wait."""
    away = ["sinfo", "--noheader", "--states=drain,down", "--format=%N"]
    return bool(subprocess.run(away, capture_output=True, text=True, check=False).stdout.strip())


def _refused(error: str, executor: Any) -> SettingError:
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    reason = (lines or ["no reason"])[0].removeprefix("sbatch: ").removeprefix("error: ")
    setting = "cluster.partition" if "partition" in reason else "cluster"
    asked = executor.parameters
    parts = ("nodes", "nodes"), ("cpus_per_task", "CPUs of each"), ("time", "minutes")
    shape = ", ".join(f"{asked[name]} {words}" for name, words in parts)
    return SettingError(setting, f"sbatch refuses {shape}: {reason}")


def _submit_array(executor: Any, members: Sequence[Sequence[Point]]) -> dict[str, str]:
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    code, root = source_digest(), Path.cwd()
    calls = [
        PointJob(
            tuple(point.config for point in each),
            tuple(record_version(point.config.folder) for point in each),
            code,
            root,
        )
        for each in members
    ]
    try:
        with executor.batch():
            jobs = [executor.submit(call) for call in calls]
    except (FailedJobError, FailedSubmissionError) as error:
        raise _refused(str(error), executor) from None
    return {
        point.config.key: job.job_id
        for each, job in zip(members, jobs, strict=True)
        for point in each
    }
