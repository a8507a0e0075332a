"""Lists, awaits and cancels the jobs of a study in Slurm's queue, and runs points in a job."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from paceline.cluster.processes import preload
from paceline.errors import SettingError, tell
from paceline.record.point_config import PointConfig
from paceline.record.provenance import output, source_digest
from paceline.record.reading import record_version

_PATIENCE = 30  # s for a command of Slurm
_MARKER = ".{key}.job"
_ROUND_SECONDS = 2
_USUAL = ("None", "Priority", "Resources", "BeginTime", "JobArrayTaskLimit")  # harmless reasons
_GRACE_SECONDS = 5  # after a job has left the queue, until its record must be visible here


def name_of(study: str) -> str:
    """Return the name of a study's jobs."""
    return f"paceline-{study}"


def living_jobs(study: str) -> dict[str, str] | None:
    """Return this user's waiting and running jobs of the study, by id.

    The value is the reason for which the job waits, or the text "None" if it runs. Jobs that were
    submitted from another working directory are left out. The result is None if Slurm does not
    answer.
    """
    asked = [f"--name={name_of(study)}", "--format=%i|%r|%Z"]
    lines = output("squeue", "--me", "--noheader", "--array", *asked, patience=_PATIENCE)
    if lines is None:
        return None
    jobs = [line.split("|", 2) for line in lines.splitlines()]
    here = Path.cwd()
    return {job: reason for job, reason, folder in jobs if Path(folder.strip()) == here}


def require_jobs(study: str) -> dict[str, str]:
    """Return `living_jobs`; raise SettingError if Slurm does not answer."""
    jobs = living_jobs(study)
    if jobs is None:
        raise SettingError("cluster", "squeue does not answer: is this a cluster under Slurm?")
    return jobs


def cancel(jobs: Iterable[str]) -> None:
    """Cancel jobs that wait or run."""
    if ids := list(jobs):
        output("scancel", *ids, patience=_PATIENCE)


def cancel_study(study: str) -> int:
    """Cancel all jobs of a study; return their number, or raise SettingError without Slurm."""
    jobs = require_jobs(study)
    cancel(jobs)
    return len(jobs)


def write_jobs(folder: Path, jobs: Mapping[str, str]) -> None:
    """Write down in `folder` in which job each point is. `jobs`: id of the job, by point's key.

    `folder`: folder of the study's records.
    """
    for key, job in jobs.items():
        made = folder / f"{_MARKER.format(key=key)}.new"
        made.write_text(f"{job}\n")
        made.replace(folder / _MARKER.format(key=key))


def read_jobs(folder: Path) -> dict[str, str]:
    """Return the job of each point that has no record since it was queued, by key.

    A job that has written a record runs the point no more, though Slurm may still list it.
    """
    paths = {path.name.split(".")[1]: path for path in folder.glob(_MARKER.format(key="*"))}
    return {
        key: path.read_text().strip()
        for key, path in paths.items()
        if (record_version(folder / key) or 0) < path.stat().st_mtime_ns
    }


def log_folder(folder: Path) -> Path:
    """Return the folder for the output of a study's jobs. `folder`: folder of its records."""
    return folder / ".jobs"


def private_folder(folder: Path) -> Path:
    """Return `log_folder`, which now exists and is this user's alone; jobs run code from its files.

    Raises SettingError("cluster") if another user made the folder or a file in it.
    """
    made = log_folder(folder)
    made.mkdir(mode=0o700, exist_ok=True)
    for path in (made, *made.iterdir()):
        if path.lstat().st_uid != os.geteuid() or made.is_symlink():
            message = f"{path} belongs to another user, and jobs run code from there; remove {made}"
            raise SettingError("cluster", message)
    made.chmod(0o700)
    return made


def last_words(path: Path) -> str:
    """Return the last line of a log that is not empty, or ""."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def ended(study: str, jobs: Mapping[str, str], has_ended: Callable[[str], bool]) -> Iterator[str]:
    """Yield the key of each point as soon as it has a new record, or its job has left the queue.

    Prints why a job waits if it may wait for ever. `jobs`: id of each point's job, by the point's
    key. `has_ended(key)` returns whether the point has a new record. While Slurm does not answer,
    no job counts as having left the queue.
    """
    left, gone, reported = dict(jobs), dict[str, float](), set[str](_USUAL)
    while left:
        living = living_jobs(study)
        for job, reason in (living or {}).items():
            if reason not in reported:
                reported.add(reason)
                tell(f"job {job} waits: {reason}")
        now = time.monotonic()
        for key, job in list(left.items()):
            if living is not None and job not in living:
                gone.setdefault(key, now)
            else:
                gone.pop(key, None)
            if has_ended(key) or now - gone.get(key, now) > _GRACE_SECONDS:
                del left[key]
                yield key
        if left:
            time.sleep(_ROUND_SECONDS)


@dataclass(frozen=True)
class PointJob:
    """Function that a job calls; it runs points one after the other.

    submitit pickles this object, and calls it again if the job is requeued. `configs`: settings of
    the points. `versions`: versions of the points' records when the points were queued; a point
    whose record has changed since is not run. `code`: digest of the source when the points were
    queued. `root`: folder of the project.
    """

    configs: tuple[PointConfig, ...]
    versions: tuple[int | None, ...]
    code: str
    root: Path

    @classmethod
    def of(cls, configs: Iterable[PointConfig]) -> "PointJob":
        """Return the function for points of the project in the working directory."""
        of = tuple(configs)
        versions = tuple(record_version(config.folder) for config in of)
        return cls(of, versions, source_digest(), Path.cwd())

    def __call__(self) -> None:
        """Run the points that have no new record; exit with 2 if one has an invalid setting."""
        sys.path[:0] = [str(self.root), str(self.root / "src")]  # for a `_target_` of the user's
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # for all that this process starts: Slurm
        if os.environ.get("SLURM_JOB_NUM_NODES", "1") == "1":  # else srun starts the processes
            preload()  # sends it to everybody, and a worker must not end before its launcher
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if source_digest() != self.code:
            message = f"the code has changed since this was queued ({self.code})"
            raise SettingError("cluster", f"{message}; sweep again")
        ran = [self._run(*each) for each in zip(self.configs, self.versions, strict=True)]
        if not all(ran):
            sys.exit(2)

    def checkpoint(self) -> object:
        """Return what submitit submits when the job is requeued: this object again."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)

    def _run(self, config: PointConfig, version: int | None) -> bool:
        """Run a point and print how it ended; return False if a setting is invalid."""
        status, ran = "has run before", True
        if record_version(config.folder) == version:
            from paceline.record.point import Point  # torch, while the forkserver imports it
            from paceline.run.run_point import run_point

            try:
                status = run_point(Point.of(config), in_sweep=True).result["status"]
            except SettingError as error:
                status, ran = str(error), False
        print(f"paceline: {config.key}: {status}", flush=True)
        return ran
