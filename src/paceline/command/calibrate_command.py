"""Command `paceline calibrate`: measures this machine, or counts a network."""

import argparse
import sys
from pathlib import Path

from paceline.command.command import Command


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--write",
        metavar="NAME",
        help="write conf/cluster/NAME.yaml, not this_machine.yaml, or conf/workload/NAME.yaml",
    )
    parser.add_argument("--count", action="store_true", help="count the network of these settings")


def _run(options: argparse.Namespace, root: Path) -> int:
    return _count(options, root) if options.count else _measure(options, root)


def _measure(options: argparse.Namespace, root: Path) -> int:
    """Measure this machine, which must be otherwise idle; takes four minutes."""
    from paceline.cluster.processes import preload
    from paceline.cluster.supervisor import ProcessFailure
    from paceline.study.compose import composed

    config = composed(options.overrides, root)
    preload()  # of torch and Lightning in the background, while they are imported here
    from paceline.command.plain_table import print_table
    from paceline.prediction.cluster_file import path_of, write
    from paceline.prediction.measure import measure
    from paceline.prediction.this_machine import rows
    from paceline.record.point import Point

    path = path_of(root / "conf/cluster", options.write or "this_machine")
    try:
        measured = measure(config)
    except ProcessFailure as failure:
        print(f"paceline: {failure}", file=sys.stderr)
        return 1
    print_table([{"measured": name, "": value} for name, value in rows(measured)])
    write(measured, Point.of(config), path)
    print(path.relative_to(root))
    return 0


def _count(options: argparse.Namespace, root: Path) -> int:
    from paceline.command.plain_table import print_table
    from paceline.prediction.workload_file import cells, count, totals, write
    from paceline.study.compose import composed

    config = composed(options.overrides, root)
    size = count(config)
    print_table([cells(layer) for layer in size.layers])
    print("\n".join(totals(size, config.values["batch_size"])))
    if options.write:
        command = " ".join(["calibrate --count", *options.overrides, "--write", options.write])
        path = write(config, size, options.write, command, root / "conf/workload")
        print(path.relative_to(root))
    return 0


COMMAND = Command(
    help="""\
measure this machine -> conf/cluster/this_machine.yaml, for `cluster=this_machine`;
settings as in train choose what it computes: model=resnet18 batch_size=64;
--count model=nin data=image_folder: weights, multiply-adds and activations, layer by
layer; --write NAME: write conf/cluster/NAME.yaml, or conf/workload/NAME.yaml""",
    run=_run,
    settings=True,
    add_arguments=_add_arguments,
)
