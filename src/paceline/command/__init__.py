"""Commands of the command line; the module `<name>_command.py` declares `paceline <name>`.

Its constant COMMAND is the declaration.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Command:
    """Declaration of a command.

    `help`: text in `paceline --help`. `run(options, root)`: function that carries the command out
    in the root of the project, and returns the exit code; it imports most of Paceline only when it
    is called, since torch takes seconds. `study`: True if the command takes an argument STUDY,
    which becomes `options.study`. `settings`: True if settings may follow, which become
    `options.overrides`. `add_arguments`: function that adds further options of the command.
    `anywhere`: True if `root` is the working directory, which need not be a project.
    """

    help: str
    run: Callable[[Namespace, Path], int]
    study: bool = False
    settings: bool = False
    add_arguments: Callable[[ArgumentParser], object] = lambda parser: None
    anywhere: bool = False
