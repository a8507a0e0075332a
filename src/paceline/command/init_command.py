"""Command `paceline init`: a project with a study, outside this repository."""

import argparse
import shlex
from pathlib import Path

from paceline.command.command import Command


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="FOLDER", nargs="?", default=".", help="default: here")


def _run(options: argparse.Namespace, root: Path) -> int:
    from paceline.command.new_project import new_project

    for name in new_project(root / options.folder):
        print(name)
    enter = "" if options.folder == "." else f"cd {shlex.quote(options.folder)} && "
    print(f"next: {enter}git init && dvc init && dvc repro, or paceline sweep first --dry-run")
    return 0


COMMAND = Command(
    help="write a project into FOLDER: conf/, a study, a module of your own, dvc.yaml",
    run=_run,
    add_arguments=_add_arguments,
    anywhere=True,
)
