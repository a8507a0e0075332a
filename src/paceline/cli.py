"""Command line: finds the command and the project's folder, and turns errors into exit codes."""

import argparse
import atexit
import importlib
import os
import signal
import sys
import threading
from importlib.metadata import version
from pathlib import Path
from typing import Any

from paceline.errors import SettingError, did_you_mean, said_of_environment

# The file of each is command/<name>_command.py, which is imported only if it runs.
COMMANDS = {
    "init": "write a project with a study and a model of your own",
    "train": "run one configuration, or several with --multirun",
    "sweep": "run the points of a study that have no record yet",
    "report": "write the conclusions, figures and page of a study, or the page of all studies",
    "show": "show all studies, one of them, or a record",
    "predict": "predict the images/s of a modelled cluster, without training",
    "plan": "recommend a scheme and a batch size for a cluster",
    "calibrate": "measure this machine, or count a network, for predictions",
}
_HELP = f"""
Train vision models on several workers, and compare ways of sharing updates.

Start here, or outside of a project first with paceline init my_project && cd my_project:
  paceline train workers=4 cluster=virtual data=fashion_mnist_subset   # simulated workers
  paceline train workers=8 cluster.accelerator=gpu                     # on 8 GPUs
  paceline sweep STUDY cluster=slurm cluster.accelerator=gpu           # each run is a Slurm job

commands (paceline COMMAND --help says more):
{chr(10).join(f"  {name:10} {text}" for name, text in COMMANDS.items())}
"""
_WITH_SETTINGS = ("train", "calibrate", "predict", "plan", "sweep")


def main() -> None:
    """Run the command in `sys.argv`, and exit with a code.

    The code is 0 for success; 1 if a point (one run of a study) failed that the command ran, no
    point of a study ended, a study breaks a rule of comparison, or the machine refused something,
    as a full disk does; 2 for a wrong setting; 130 if the user interrupted the command.
    """
    sys.unraisablehook = _interrupt_again
    try:
        sys.exit(_run(sys.argv[1:]))
    except SettingError as error:
        print(f"paceline: {error}", file=sys.stderr)
        sys.exit(2)
    except (OSError, MemoryError) as error:
        if (said := said_of_environment(error)) is None:
            raise
        print(f"paceline: {said}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("paceline: interrupted; finished points are kept", file=sys.stderr)
        sys.exit(130)


def _interrupt_again(lost: Any) -> None:
    """Repeat a Ctrl-C that came while Python called something whose errors it ignores, such as a
    callback of its import system, or a library in C.
    """
    if issubclass(lost.exc_type, KeyboardInterrupt):
        main_thread = threading.main_thread().ident
        threading.Timer(0.1, signal.pthread_kill, (main_thread, signal.SIGINT)).start()
    else:
        sys.__unraisablehook__(lost)


def find_root(start: Path) -> Path:
    """Return the folder that contains conf/: `start` or its nearest parent.

    Raises SettingError("conf") if there is none.
    """
    for folder in (start, *start.parents):
        if (folder / "conf" / "config.yaml").is_file():
            return folder
    message = f"no conf/config.yaml in {start} or a folder above it; paceline init writes a project"
    raise SettingError("conf", message)


def command(name: str) -> Any:
    """Import the module of a command: `add_arguments(parser)`, and `run(options, root)`, which
    carries it out in the root of the project and returns the exit code.
    """
    return importlib.import_module(f"paceline.command.{name}_command")


def _run(arguments: list[str]) -> int:
    options = _parse(arguments)
    try:
        root = Path.cwd() if options.command == "init" else find_root(Path.cwd())
    except SettingError:
        if not _is_without_project(options):
            raise
        return command(options.command).run(options, Path(__file__).parent)  # with Paceline's conf/
    os.chdir(root)  # paths in settings are relative to it
    sys.path[:0] = [str(root), str(root / "src")]  # for a `_target_` of the user's
    if options.command in ("train", "sweep") and _is_follower():
        return 0
    return command(options.command).run(options, root)


def _is_without_project(options: argparse.Namespace) -> bool:
    """Return True for a plan, and for a prediction of a modelled cluster, which need no files."""
    of_files = ("study", "record", "published")
    return options.command in ("plan", "predict") and not any(
        getattr(options, name, None) for name in of_files
    )


def _is_follower() -> bool:
    """Return True, after the command has ended, if another process of torchrun's ran it.

    torchrun starts several processes; the one of rank 0 runs the command, and for that process
    this function returns False at once. Raises SettingError if srun started several processes,
    since each of these would run the command.
    """
    if "TORCHELASTIC_RUN_ID" in os.environ:
        if os.environ["RANK"] == "0":
            from paceline.cluster.torchrun import let_others_go  # torch takes seconds

            atexit.register(let_others_go)
            return False
        from paceline.cluster.world import follow

        follow(int(os.environ["RANK"]))
        return True
    if int(os.environ.get("SLURM_STEP_NUM_TASKS", "1")) > 1:
        message = "srun started several, each of which would run all; cluster=slurm queues jobs"
        raise SettingError("processes", message)
    return False


def _parse(arguments: list[str]) -> argparse.Namespace:
    """Parse a command line; `overrides` of the result has the settings, such as `seed=0,1`.

    Settings may stand before or after options.
    """
    name = arguments[0] if arguments else "-"
    if name[:1] not in ("-", "") and name not in COMMANDS:
        message = f"there is no {name}{did_you_mean(name, COMMANDS)}"
        raise SettingError("command", f"{message}; paceline --help lists all")
    as_written = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("paceline", formatter_class=as_written)
    if name not in COMMANDS:
        parser.usage, parser.description = "paceline COMMAND ...", _HELP
        shown = f"paceline {version('paceline')}"
        parser.add_argument("--version", action="version", version=shown)
        parser.parse_args(arguments)
        parser.error("a command is missing")
    parser.prog, parser.description = f"paceline {name}", command(name).__doc__
    command(name).add_arguments(parser)
    options, rest = parser.parse_known_args(arguments[1:])
    options.command = name
    takes_settings = name in _WITH_SETTINGS
    if unknown := [word for word in rest if word.startswith("-") or not takes_settings]:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    options.overrides = [*getattr(options, "overrides", []), *rest]
    return options


if __name__ == "__main__":
    main()
