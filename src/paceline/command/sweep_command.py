"""Command `paceline sweep`: the points of a study that have no record yet."""

import argparse
from pathlib import Path

from paceline.command.command import Command


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--dry-run", action="store_true", help="show points, hours, memory")
    only.add_argument("--prepare", action="store_true", help="find or download the data, no more")
    only.add_argument("--cancel", action="store_true", help="take its jobs out of Slurm's queue")


def _run(options: argparse.Namespace, root: Path) -> int:
    from paceline.study.hydra_entry import multirun
    from paceline.study.hydra_error import hydra_errors
    from paceline.study.prepare import prepare
    from paceline.study.queue.jobs import cancel_study
    from paceline.study.study_points import require_study
    from paceline.study.sweep import checked_study, print_plan

    require_study(options.study, root)
    if options.cancel:
        print(f"{options.study}: {cancel_study(options.study)} jobs cancelled")
        return 0
    with hydra_errors("study"):
        if options.prepare:
            print(prepare(options.study, root, options.overrides))
            return 0
        if options.dry_run:
            print_plan(checked_study(options.study, root, options.overrides))
            return 0
        complete = multirun([f"experiments={options.study}", *options.overrides], root)
    return 0 if complete else 1


COMMAND = Command(
    help="""\
run the points of a study that have no record yet -> reports/<study>/runs.csv;
--dry-run shows them, --prepare gets their data, --cancel ends their jobs in a queue""",
    run=_run,
    study=True,
    settings=True,
    add_arguments=_add_arguments,
)
