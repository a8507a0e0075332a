"""Command `paceline sweep`: the points of a study that have no record yet."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.command.command import Command

if TYPE_CHECKING:
    from paceline.study.study_points import StudyPoint


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="show points, hours, memory")


def _run(options: argparse.Namespace, root: Path) -> int:
    from paceline.study.hydra_entry import multirun
    from paceline.study.hydra_error import hydra_errors
    from paceline.study.sweep import sweep

    with hydra_errors("study"):
        complete = sweep(
            options.study,
            root,
            multirun,
            options.overrides,
            dry_run=options.dry_run,
            untrained=_write_untrained,
        )
    return 0 if complete else 1


def _write_untrained(points: "Sequence[StudyPoint]") -> None:
    """Write the records of those `points` that need no training: copies, and retimed ones."""
    from paceline.study.sweep import points_to_run
    from paceline.study.take_over import take_over

    take_over(points)
    if left := points_to_run(points):
        from paceline.prediction.retime import retime_points  # torch takes seconds

        retime_points(left)


COMMAND = Command(
    help="run the points of a study that have no record yet; --dry-run shows them",
    run=_run,
    study=True,
    settings=True,
    add_arguments=_add_arguments,
)
