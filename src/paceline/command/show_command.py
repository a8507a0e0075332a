"""Command `paceline show`: what there is of all studies, of one, or of one record."""

import argparse
import sys
from pathlib import Path

from paceline.command.command import Command

_WIDTH = 200  # of tables where there is no terminal


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("study", metavar="STUDY", nargs="?", help="a file in experiments/")
    parser.add_argument("key", metavar="KEY", nargs="?", help="of a record, or its first digits")


def _run(options: argparse.Namespace, root: Path) -> int:
    from rich.console import Console

    from paceline.command.record_view import find_record, record_view
    from paceline.command.studies_view import studies_view
    from paceline.command.study_view import study_view
    from paceline.study.study_points import studies

    width = None if sys.stdout.isatty() else _WIDTH
    console = Console(highlight=False, soft_wrap=True, width=width)
    if options.study is None:
        parts = studies_view(root)
    elif options.key is None and options.study in studies(root):
        parts = study_view(options.study, root)
    else:
        study = options.study if options.key else "*"
        parts = record_view(find_record(study, options.key or options.study, root), root)
    for part in parts:
        console.print(part, markup=False) if isinstance(part, str) else console.print(part)
    return 0


COMMAND = Command(
    help="""\
all studies: how many of their points have run, and what is best;
show STUDY: its configurations, decisions and failures, and what comes next;
show KEY: a record, what it differs in from the default, and how to repeat it""",
    run=_run,
    add_arguments=_add_arguments,
)
