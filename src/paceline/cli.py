"""Command line: finds the command and the project's folder, and turns errors into exit codes."""

import argparse
import atexit
import importlib
import os
import resource
import signal
import sys
import threading
from importlib.metadata import version
from pathlib import Path
from typing import Any

from paceline.command import Command
from paceline.errors import SettingError, did_you_mean, said_of_environment

COMMANDS = (  # <name>_command.py in command/, as `paceline --help` lists them
    "init",
    "train",
    "agent",
    "calibrate",
    "predict",
    "plan",
    "sweep",
    "report",
    "show",
)
_LEAST_BYTES = 2**30  # of memory, for the imports of a command that trains
_WIDTH = 11  # of the column of names in the help


def main() -> None:
    """Run the command in `sys.argv`, and exit with a code.

    The code is 0 for success; 1 if a point (one run of a study) failed that the command ran, no
    point of a study ended, a study breaks a rule of comparison, or the machine refused something,
    as a full disk does; 2 for a wrong setting; 130 if the user interrupted the command.
    """
    sys.unraisablehook = _interrupt_again
    try:
        require_memory()
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


def require_memory() -> None:
    """Raise SettingError if a limit leaves too little memory for the libraries of a command.

    Some of them end the process, with words of their own, while they are imported.
    """
    for name in ("RLIMIT_DATA", "RLIMIT_AS"):
        soft, _ = resource.getrlimit(getattr(resource, name))
        if 0 <= soft < _LEAST_BYTES:
            message = (
                f"{soft // 2**20} MiB of memory are allowed, and {_LEAST_BYTES // 2**20} needed"
            )
            raise SettingError(name, f"{message}; ulimit raises it")


def find_root(start: Path) -> Path:
    """Return the folder that contains conf/: `start` or its nearest parent.

    Raises SettingError("conf") if there is none.
    """
    for folder in (start, *start.parents):
        if (folder / "conf" / "config.yaml").is_file():
            return folder
    message = f"no conf/config.yaml in {start} or a folder above it; paceline init writes a project"
    raise SettingError("conf", message)


def command(name: str) -> Command:
    """Return the command that the file `command/<name>_command.py` declares."""
    return importlib.import_module(f"paceline.command.{name}_command").COMMAND


def _run(arguments: list[str]) -> int:
    options = _parse(arguments)
    declared = command(options.command)
    root = Path.cwd() if declared.anywhere else find_root(Path.cwd())
    os.chdir(root)  # paths in settings are relative to it
    sys.path[:0] = [str(root), str(root / "src")]  # for a `_target_` of the user's
    if options.command in ("train", "sweep") and _is_follower():
        return 0
    return declared.run(options, root)


def _is_follower() -> bool:
    """Return True, after the command has ended, if another process of torchrun's ran it.

    torchrun starts several processes; the one of rank 0 runs the command, and for that process
    this function returns False at once. Raises SettingError if srun started several processes,
    since each of these would run the command.
    """
    if "TORCHELASTIC_RUN_ID" in os.environ:
        from paceline.cluster import torchrun
        from paceline.record.provenance import source_digest

        if os.environ["RANK"] == "0":
            atexit.register(torchrun.let_others_go)
            return False
        torchrun.serve_torchrun(source_digest())
        return True
    if int(os.environ.get("SLURM_STEP_NUM_TASKS", "1")) > 1:
        message = "srun started several, each of which would run all: one, and agents beside it"
        raise SettingError("processes", message)
    return False


def _parse(arguments: list[str]) -> argparse.Namespace:
    """Parse a command line; `overrides` of the result has the settings, such as `seed=0,1`.

    Settings may stand before or after options.
    """
    if arguments and arguments[0][:1] not in ("-", "") and arguments[0] not in COMMANDS:
        message = f"there is no {arguments[0]}{did_you_mean(arguments[0], COMMANDS)}"
        raise SettingError("command", f"{message}; paceline --help lists all")
    parser = _parser()
    options, rest = parser.parse_known_args(arguments)
    takes_settings = command(options.command).settings
    unknown = [word for word in rest if word.startswith("-") or not takes_settings]
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    options.overrides = [*getattr(options, "overrides", []), *rest]
    return options


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="paceline",
        description=_help(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"paceline {version('paceline')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in COMMANDS:
        declared = command(name)
        # train has a --help of its own
        each = commands.add_parser(name, description=declared.help, conflict_handler="resolve")
        if declared.study:
            each.add_argument("study", metavar="STUDY", help="a file in experiments/")
        if declared.settings:
            each.epilog = "Settings may follow, as in `paceline train`: seed=0,1"
        declared.add_arguments(each)
    return parser


def _help() -> str:
    lines = ["What happens to accuracy and throughput as SGD is spread over workers.", ""]
    for name in COMMANDS:
        first = command(name).help.splitlines()[0].rstrip(";:")
        lines.append(f"  {name:<{_WIDTH}}{first}")
    return "\n".join([*lines, "", "paceline COMMAND --help tells more."])


if __name__ == "__main__":
    main()
