"""Commands of the command line; `<name>_command.py` declares one as COMMAND."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Command:
    """A command.

    `help`: text in `paceline --help`. `run(options, root)`: what it does, in the repository's root,
    importing its rooms only then, since torch takes seconds; returns the exit code. `study`:
    whether it takes STUDY, as `options.study`. `settings`: whether settings may follow, as
    `options.overrides`. `add_arguments`: adds options of its own. `anywhere`: whether `root` is the
    working directory, with or without a repository.
    """

    help: str
    run: Callable[[Namespace, Path], int]
    study: bool = False
    settings: bool = False
    add_arguments: Callable[[ArgumentParser], object] = lambda parser: None
    anywhere: bool = False
