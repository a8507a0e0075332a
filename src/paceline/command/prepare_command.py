"""Command `paceline prepare`: the data of a study."""

import argparse
from pathlib import Path

from paceline.command.command import Command


def _run(options: argparse.Namespace, root: Path) -> int:
    from paceline.study.prepare import prepare

    print(prepare(options.study, root, options.overrides))
    return 0


COMMAND = Command(
    help="find or download, and verify, the data of a study",
    run=_run,
    study=True,
    settings=True,
)
