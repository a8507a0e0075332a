"""Command `paceline sweep`: the points of a study that have no record yet."""

import argparse
from pathlib import Path

from paceline.command.command import Command


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="show points, hours, memory")


def _run(options: argparse.Namespace, root: Path) -> int:
    from paceline.study.hydra_entry import multirun
    from paceline.study.hydra_error import hydra_errors
    from paceline.study.study_points import require_study
    from paceline.study.sweep import checked_study, print_plan

    require_study(options.study, root)
    with hydra_errors("study"):
        if options.dry_run:
            print_plan(checked_study(options.study, root, options.overrides))
            return 0
        complete = multirun([f"experiments={options.study}", *options.overrides], root)
    return 0 if complete else 1


COMMAND = Command(
    help="run the points of a study that have no record yet; --dry-run shows them",
    run=_run,
    study=True,
    settings=True,
    add_arguments=_add_arguments,
)
