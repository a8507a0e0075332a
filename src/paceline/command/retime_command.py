"""Command `paceline retime`: a record's curve on another cluster."""

import argparse
from pathlib import Path

from paceline.command.command import Command


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("key", metavar="KEY", help="of a record in runs/")


def _run(options: argparse.Namespace, root: Path) -> int:
    from paceline.prediction.retime import retime, table

    print(table(retime(options.key, options.overrides, root)))
    return 0


COMMAND = Command(
    help="""\
the curve of a record on another modelled cluster, where times change no update:
`paceline retime 656d4840fa49 cluster=titan workload=nin`""",
    run=_run,
    settings=True,
    add_arguments=_add_arguments,
)
