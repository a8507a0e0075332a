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
    "init": "write a project: conf/, a study, a module of your own, dvc.yaml",
    "train": "one run, or many by --multirun: paceline train scheme=local_sgd workers=2",
    "agent": "run this machine's part of runs of several machines",
    "calibrate": "measure this machine, or count a network",
    "predict": "images/s of a modelled cluster, without training",
    "plan": "scheme, workers and batch size for a cluster",
    "sweep": "run the points of a study that have no record yet",
    "report": "conclusions, figures and page of a study; without STUDY: the front page",
    "show": "all studies, one of them, or a record",
}
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
    root = Path.cwd() if options.command == "init" else find_root(Path.cwd())
    os.chdir(root)  # paths in settings are relative to it
    sys.path[:0] = [str(root), str(root / "src")]  # for a `_target_` of the user's
    if options.command in ("train", "sweep") and _is_follower():
        return 0
    return command(options.command).run(options, root)


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
    name = arguments[0] if arguments else "-"
    if name[:1] not in ("-", "") and name not in COMMANDS:
        message = f"there is no {name}{did_you_mean(name, COMMANDS)}"
        raise SettingError("command", f"{message}; paceline --help lists all")
    parser = argparse.ArgumentParser(
        prog="paceline",
        description="What happens to accuracy and throughput as SGD is spread over workers.",
        epilog="paceline COMMAND --help tells more.",
    )
    parser.add_argument("--version", action="version", version=f"paceline {version('paceline')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for each, text in COMMANDS.items():
        # train has a --help of its own
        own = commands.add_parser(each, help=text, conflict_handler="resolve")
        if each == name:
            own.description = command(each).__doc__
            command(each).add_arguments(own)
    options, rest = parser.parse_known_args(arguments)
    takes_settings = options.command in _WITH_SETTINGS
    if unknown := [word for word in rest if word.startswith("-") or not takes_settings]:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    options.overrides = [*getattr(options, "overrides", []), *rest]
    return options


if __name__ == "__main__":
    main()
