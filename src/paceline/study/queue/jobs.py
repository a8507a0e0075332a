"""Jobs of a study in Slurm's queue: which there are, and which of them has which point."""

import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from paceline.errors import SettingError

_PATIENCE = 30  # s, with a command of Slurm
_MARKER = ".{key}.job"


def name_of(study: str) -> str:
    """Return the name of a study's jobs."""
    return f"paceline-{study}"


def living_jobs(study: str) -> dict[str, str] | None:
    """Return this user's jobs of the study in this folder, by id: why each waits, "None" if not.

    None if Slurm does not answer, which says nothing about them.
    """
    asked = [f"--name={name_of(study)}", "--format=%i|%r|%Z"]
    lines = _output("squeue", "--me", "--noheader", "--array", *asked)
    if lines is None:
        return None
    jobs = [line.split("|", 2) for line in lines.splitlines()]
    here = Path.cwd()
    return {job: reason for job, reason, folder in jobs if Path(folder.strip()) == here}


def cancel(jobs: Iterable[str]) -> None:
    """Take jobs out of the queue, and end those that run."""
    ids = list(jobs)
    if ids:
        _output("scancel", *ids)


def cancel_study(study: str) -> int:
    """Cancel all jobs of a study; return their number. Raises SettingError if Slurm is silent."""
    jobs = living_jobs(study)
    if jobs is None:
        raise SettingError("cluster", "squeue does not answer: is this a cluster under Slurm?")
    cancel(jobs)
    return len(jobs)


def write_jobs(folder: Path, jobs: Mapping[str, str]) -> None:
    """Keep the job of each point, by key, in the folder of the study's records."""
    for key, job in jobs.items():
        made = folder / f"{_MARKER.format(key=key)}.new"
        made.write_text(f"{job}\n")
        made.replace(folder / _MARKER.format(key=key))


def read_jobs(folder: Path) -> dict[str, str]:
    """Return the job of each point that was queued last, by key."""
    paths = folder.glob(_MARKER.format(key="*"))
    return {path.name.split(".")[1]: path.read_text().strip() for path in paths}


def log_of(folder: Path, job: str) -> Path:
    """Return the file of what a job printed."""
    return log_folder(folder) / f"{job}_0_log.out"


def log_folder(folder: Path) -> Path:
    """Return the folder of the jobs of the study whose records are in `folder`."""
    return folder / ".jobs"


def last_words(path: Path) -> str:
    """Return the last line of a log that says something, or ""."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _output(*command: str) -> str | None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_PATIENCE
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
