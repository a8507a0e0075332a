"""Command `paceline cancel`: the jobs of a study leave the queue."""

import argparse
from pathlib import Path

from paceline.command.command import Command


def _run(options: argparse.Namespace, root: Path) -> int:
    from paceline.errors import SettingError
    from paceline.study.queue.jobs import cancel, living_jobs

    jobs = living_jobs(options.study)
    if jobs is None:
        raise SettingError("cluster", "squeue does not answer: is this a cluster under Slurm?")
    cancel(jobs)
    print(f"{options.study}: {len(jobs)} jobs cancelled")
    return 0


COMMAND = Command(
    help="take the points of a study out of the queue of cluster=slurm, and end those that run",
    run=_run,
    study=True,
)
