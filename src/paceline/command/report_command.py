"""Command `paceline report`: a study's page and figures, and the front page of all studies."""

import argparse
import sys
from pathlib import Path

from paceline.command.command import Command


def _run(options: argparse.Namespace, root: Path) -> int:
    from paceline.record.tracking.study_run import log_study_files
    from paceline.report.exchange_page import report_exchanges
    from paceline.report.front_page import is_of_exchanges, write_front_page
    from paceline.report.page import report
    from paceline.report.readme_answer import write_readme_answer

    reports = root / "reports"
    if options.study is not None:
        folder = reports / options.study
        page = report_exchanges(folder) if is_of_exchanges(folder) else report(folder)
        files = [page, folder / "tables/decision.csv"]
        if unlogged := log_study_files(root / "runs" / options.study, files):
            print(f"paceline: {unlogged}; the next report tries again", file=sys.stderr)
        print(page)
    else:
        write_readme_answer(root)
    print(write_front_page(reports))
    return 0


def _arguments(parser: argparse.ArgumentParser) -> None:
    text = "a file in experiments/; without it: the front page, and the answers in README.md"
    parser.add_argument("study", metavar="STUDY", nargs="?", help=text)


COMMAND = Command(
    help="those tables -> index.html, README.md, figures; without STUDY: reports/index.html",
    run=_run,
    add_arguments=_arguments,
)
