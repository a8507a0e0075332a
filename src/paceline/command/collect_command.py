"""Command `paceline collect`: a study's records as tables."""

import argparse
from pathlib import Path

from paceline.command.command import Command


def _run(options: argparse.Namespace, root: Path) -> int:
    from paceline.study.collect import collect

    collect(options.study, root, options.overrides)
    return 0


COMMAND = Command(
    help="records of a study -> reports/<study>/runs.csv, curves.csv, ...",
    run=_run,
    study=True,
    settings=True,
)
