"""Command `paceline train`: one run, or a sweep by Hydra's --multirun."""

import argparse
from pathlib import Path

from paceline.command.command import Command


def _run(options: argparse.Namespace, root: Path) -> int:
    from paceline.study.hydra_entry import run_hydra
    from paceline.study.hydra_error import hydra_errors

    with hydra_errors("train"):
        run_hydra(options.overrides, root)
    return 0


COMMAND = Command(
    help="""\
one run: `paceline train scheme=async_parameter_server workers=2 seed=1`;
Hydra's whole command line: --help, --cfg job, --multirun""",
    run=_run,
    settings=True,
)
