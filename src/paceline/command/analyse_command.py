"""Command `paceline analyse`: conclusions from a study's tables."""

import argparse
from pathlib import Path

from paceline.command.command import Command


def _run(options: argparse.Namespace, root: Path) -> int:
    from paceline.analysis.analyse import analyse

    analyse(root / "reports" / options.study)
    return 0


COMMAND = Command(
    help="those tables -> tables/summary.csv, tables/scaling.csv, ...",
    run=_run,
    study=True,
)
