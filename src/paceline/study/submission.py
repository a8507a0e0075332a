"""Submits points to Slurm by submitit: one job array for all points that need equal resources."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from paceline.errors import SettingError, tell
from paceline.grouped import grouped
from paceline.record.point import Point
from paceline.record.provenance import output
from paceline.record.reading import latest_result, record_version
from paceline.record.record import Lock
from paceline.run.run_point import prepare_data
from paceline.study import slurm_jobs
from paceline.study.progress import result_line
from paceline.study.slurm_jobs import PointJob, log_folder, private_folder

_SIGNAL_SECONDS = 90  # before the time limit, so that a point can write a checkpoint

Versions = Mapping[str, int | None]  # of records, by key
Jobs = dict[str, str]  # of points, by key


def run_queued(points: Sequence[Point]) -> list[str]:
    """Submit points of one study to the queue, and wait for those whose cluster sets `wait`.

    Prints how each awaited point ended. Returns the problems in words: jobs that ended without a
    record, and failed points.
    """
    study, by_key = points[0].study, {point.config.key: point for point in points}
    versions = {key: record_version(point.config.folder) for key, point in by_key.items()}
    new, earlier = _submit_missing(points, versions)
    jobs = new | earlier
    parts = [f"{len(new)} points queued"]
    if earlier:
        parts.append(f"{len(earlier)} were already")
    numbers = sorted({job.split("_")[0] for job in jobs.values()}, key=int)
    print(f"{study}: {', '.join(parts)}; jobs {', '.join(numbers) or 'none'}", flush=True)

    def has_ended(key: str) -> bool:
        return record_version(by_key[key].config.folder) != versions[key]

    queues = {key: by_key[key].cluster.submitted_to for key in jobs}
    awaited = {key: jobs[key] for key, queue in queues.items() if queue is not None and queue.wait}
    try:
        ended = slurm_jobs.ended(study, awaited, has_ended)
        problems = [_tell(by_key[key], jobs[key], has_ended(key)) for key in ended]
    except KeyboardInterrupt:
        message = "its jobs continue, and the next sweep waits for them"
        tell(f"{message}; paceline sweep {study} --cancel ends them")
        raise
    return [problem for problem in problems if problem]


def _tell(point: Point, job: str, has_ended: bool) -> str:
    """Print how the point ended; return the problem, or ""."""
    config = point.config
    result = latest_result(config.folder) if has_ended else None
    if result is None:
        path = log_folder(config.folder.parent) / f"{job}_0_log.out"
        words = slurm_jobs.last_words(path) or "it printed nothing"
        problem = f"job {job} left the queue without a new record: {words}"
        tell(f"{config.key}: {problem}; {path}")
        return problem
    print(result_line(None, config, result, f"job {job}"), flush=True)
    return result["reason"] if result["status"] == "failed" else ""


def _submit_missing(points: Sequence[Point], versions: Versions) -> tuple[Jobs, Jobs]:
    """Submit the points that are not in the queue yet, and whose records have not changed since.

    `versions`: the versions of their records before. Returns the new jobs, and the jobs in the
    queue from an earlier submission. Raises SettingError, before anything is submitted, if Slurm
    could not run one of the new jobs.
    """
    study, folder = points[0].study, points[0].config.folder.parent
    folder.mkdir(parents=True, exist_ok=True)
    lock = Lock(folder / ".submit.lock")
    lock.acquire(patience=-1)
    try:
        living, left = slurm_jobs.require_jobs(study), slurm_jobs.read_jobs(folder)
        earlier = {key: job for key, job in left.items() if job in living}
        # cancel jobs of a submission that was killed before it wrote down their points
        slurm_jobs.cancel(set(living) - set(earlier.values()))
        new = [
            point
            for point in points
            if point.config.key not in earlier
            and record_version(point.config.folder) == versions[point.config.key]
        ]
        return _submit(new, study, folder), earlier
    finally:
        lock.release()


def _submit(points: Sequence[Point], study: str, folder: Path) -> Jobs:
    arrays = [(_executor(study, folder, needs), of) for needs, of in _by_needs(points)]
    for executor, _ in arrays:
        _check(executor)
    for data in {str(point.data): point.data for point in points}.values():
        prepare_data(data)  # once, and where there is a network
    jobs: Jobs = {}
    for executor, members in arrays:
        made = _submit_array(executor, members)
        slurm_jobs.write_jobs(folder, made)
        jobs |= made
    return jobs


def _by_needs(points: Sequence[Point]) -> Iterator[tuple[dict[str, Any], list[list[Point]]]]:
    """Group points by needed resources; yield the resources and the points of each job."""

    def needs_of(point: Point) -> str:
        assert point.cluster.submitted_to is not None
        needs = point.cluster.needs_of(*point.num_processes)
        return json.dumps([needs, point.cluster.submitted_to.points_per_job], sort_keys=True)

    for text, members in grouped(points, needs_of).items():
        needs, size = json.loads(text)
        yield needs, [members[first : first + size] for first in range(0, len(members), size)]


def _executor(study: str, folder: Path, needs: Mapping[str, Any]) -> Any:
    import submitit

    # exec, so that the signal before the limit reaches Python in place of the batch shell
    executor = submitit.SlurmExecutor(private_folder(folder), python=f"exec {sys.executable}")
    arguments = {"signal": f"B:USR2@{_SIGNAL_SECONDS}", **needs["additional_parameters"]}
    own = {"job_name": slurm_jobs.name_of(study), "use_srun": False, "stderr_to_stdout": True}
    executor.update_parameters(**{**needs, **own, "additional_parameters": arguments})
    return executor


def _check(executor: Any) -> None:
    """Raise SettingError if Slurm could never run such a job.

    A job that needs nodes that are drained or down is allowed. Plain sbatch would also accept more
    nodes than exist, and the job would wait for ever.
    """
    text = executor._make_submission_file_text("true", "")
    done = subprocess.run(["sbatch", "--test-only"], input=text, capture_output=True, text=True)
    if done.returncode:
        away = output("sinfo", "--noheader", "--states=drain,down", "--format=%N")
        if not ("not available" in done.stderr and away):
            raise _refused(done.stderr, executor)


def _refused(error: str, executor: Any) -> SettingError:
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    reason = (lines or ["no reason"])[0].removeprefix("sbatch: ").removeprefix("error: ")
    setting = "cluster.partition" if "partition" in reason else "cluster"
    asked = executor.parameters
    shape = "{nodes} nodes, {cpus_per_task} CPUs of each, {time} minutes".format(**asked)
    return SettingError(setting, f"sbatch refuses {shape}: {reason}")


def _submit_array(executor: Any, members: Sequence[Sequence[Point]]) -> Jobs:
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    calls = [PointJob.of([point.config for point in each]) for each in members]
    try:
        with executor.batch():
            jobs = [executor.submit(call) for call in calls]
    except (FailedJobError, FailedSubmissionError) as error:
        raise _refused(str(error), executor) from None
    made = zip(calls, jobs, strict=True)
    return {config.key: job.job_id for call, job in made for config in call.configs}
