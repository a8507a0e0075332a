"""Command `paceline calibrate`: measures this machine."""

import argparse
import sys
from pathlib import Path

from paceline.command.command import Command


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--write", metavar="NAME", default="this_machine", help="write conf/cluster/NAME.yaml"
    )


def _run(options: argparse.Namespace, root: Path) -> int:
    """Measure this machine, which must be otherwise idle; takes four minutes."""
    from paceline.cluster.processes import preload
    from paceline.cluster.supervisor import ProcessFailure
    from paceline.study.compose import composed

    config = composed(options.overrides, root)
    preload()  # of torch and Lightning in the background, while they are imported here
    from paceline.calibration.cluster_file import path_of, write
    from paceline.calibration.measure import measure
    from paceline.calibration.this_machine import table
    from paceline.record.point import Point

    path = path_of(root / "conf/cluster", options.write)
    try:
        measured = measure(config)
    except ProcessFailure as failure:
        print(f"paceline: {failure}", file=sys.stderr)
        return 1
    print(table(measured))
    write(measured, Point.of(config), path)
    print(path.relative_to(root))
    return 0


COMMAND = Command(
    help="""\
measure this machine -> conf/cluster/this_machine.yaml, for `cluster=this_machine`, or
NAME.yaml with --write NAME;
settings as in train choose what it computes: model=resnet18 batch_size=64""",
    run=_run,
    settings=True,
    add_arguments=_add_arguments,
)
