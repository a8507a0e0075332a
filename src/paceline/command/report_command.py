"""Command `paceline report`: a study's page and figures."""

import argparse
from pathlib import Path

from paceline.command.command import Command


def _run(options: argparse.Namespace, root: Path) -> int:
    from paceline.report.page import report

    print(report(root / "reports" / options.study))
    return 0


COMMAND = Command(
    help="those tables -> index.html, README.md, figures",
    run=_run,
    study=True,
)
