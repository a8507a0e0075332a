"""Command `paceline analyse`: conclusions from a study's tables."""

import argparse
from pathlib import Path

from paceline.command.command import Command


def _run(options: argparse.Namespace, root: Path) -> int:
    from paceline.analysis.analyse import analyse
    from paceline.analysis.analyse_exchanges import analyse_exchanges
    from paceline.analysis.exchanges import NAME

    folder = root / "reports" / options.study
    if (folder / NAME).is_file():
        analyse_exchanges(folder)
    else:
        analyse(folder)
    return 0


COMMAND = Command(
    help="those tables -> tables/summary.csv, tables/scaling.csv, ...",
    run=_run,
    study=True,
)
