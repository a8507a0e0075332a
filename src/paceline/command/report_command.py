"""Command `paceline report`: a study's page and figures."""

import argparse
import sys
from pathlib import Path

from paceline.command.command import Command


def _run(options: argparse.Namespace, root: Path) -> int:
    from paceline.analysis.exchanges import NAME
    from paceline.report.exchange_page import report_exchanges
    from paceline.report.page import report
    from paceline.tracking.study_run import log_study_files

    folder = root / "reports" / options.study
    make = report_exchanges if (folder / NAME).is_file() else report
    page = make(folder)
    files = [page, folder / "tables/decision.csv"]
    unlogged = log_study_files(root / "runs" / options.study, files)
    if unlogged:
        print(f"paceline: {unlogged}; the next report tries again", file=sys.stderr)
    print(page)
    return 0


COMMAND = Command(
    help="those tables -> index.html, README.md, figures",
    run=_run,
    study=True,
)
