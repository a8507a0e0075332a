"""Write a project into FOLDER: conf/, a study, a module of your own, dvc.yaml."""

import argparse
import shlex
import shutil
from pathlib import Path

import paceline
from paceline.errors import SettingError

_TEMPLATE = Path(__file__).with_name("project")
_CONFIG = Path(paceline.__file__).parent / "conf/config.yaml"


def new_project(folder: Path) -> list[Path]:
    """Write a project into `folder`; return the paths of its files, relative to `folder`.

    If one of these files exists already, raises SettingError("folder") before anything is written.
    """
    sources = (path for path in _TEMPLATE.rglob("*") if path.is_file())
    files = {path.relative_to(_TEMPLATE): path for path in sources if path.suffix != ".pyc"}
    files[Path(".gitignore")] = files.pop(Path("gitignore"))
    files[Path("conf/config.yaml")] = _CONFIG
    if there := [name for name in sorted(files) if (folder / name).exists()]:
        raise SettingError("folder", f"{folder / there[0]} is there already; nothing was written")
    try:
        for name, source in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, folder / name)
    except OSError as error:
        raise SettingError("folder", f"cannot write {folder}: {error.strerror}") from error
    return sorted(files)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="FOLDER", nargs="?", default=".", help="default: here")


def run(options: argparse.Namespace, root: Path) -> int:
    for name in new_project(root / options.folder):
        print(name)
    enter = "" if options.folder == "." else f"cd {shlex.quote(options.folder)} && "
    print(f"next: {enter}git init && dvc init && dvc repro, or paceline sweep first --dry-run")
    return 0
