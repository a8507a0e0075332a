"""Command `paceline count`: what a network has and does, layer by layer."""

import argparse
from pathlib import Path

from paceline.command.command import Command


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--write", metavar="NAME", help="write conf/workload/NAME.yaml")


def _run(options: argparse.Namespace, root: Path) -> int:
    from paceline.calibration.workload_file import count, table, write
    from paceline.study.compose import composed

    config = composed(options.overrides, root)
    size = count(config)
    print(table(size, config.values["batch_size"]))
    if options.write:
        command = " ".join(["count", *options.overrides, "--write", options.write])
        path = write(config, size, options.write, command, root / "conf/workload")
        print(path.relative_to(root))
    return 0


COMMAND = Command(
    help="""\
weights, multiply-adds and activations of a network, layer by layer:
`paceline count model=nin data=image_folder batch_size=1024`; --write NAME makes
conf/workload/NAME.yaml of it, for `workload=NAME` on a modelled cluster""",
    run=_run,
    settings=True,
    add_arguments=_add_arguments,
)
