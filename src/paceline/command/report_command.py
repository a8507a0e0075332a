"""Command `paceline report`: a study's page and figures."""

import argparse
from pathlib import Path

from paceline.command.command import Command


def _run(options: argparse.Namespace, root: Path) -> int:
    from paceline.analysis.exchanges import NAME
    from paceline.report.exchange_page import report_exchanges
    from paceline.report.page import report

    folder = root / "reports" / options.study
    make = report_exchanges if (folder / NAME).is_file() else report
    print(make(folder))
    return 0


COMMAND = Command(
    help="those tables -> index.html, README.md, figures",
    run=_run,
    study=True,
)
