"""Command `paceline published`: predictions beside published numbers."""

import argparse
from pathlib import Path

from paceline.command.command import Command


def _run(options: argparse.Namespace, root: Path) -> int:
    from paceline.prediction.published_report import write

    print(write(root).relative_to(root))
    return 0


COMMAND = Command(
    help="predictions of published numbers -> reports/predictions, by papers/predictions.yaml",
    run=_run,
)
