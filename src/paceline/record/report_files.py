"""Reads files of a report, and writes them whole or not at all."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from paceline.errors import SettingError, printable
from paceline.record.fields import fault_of_fields, types_of
from paceline.record.foreign_file import UnfitError, read_foreign, values_in
from paceline.record.rows import StudyState

_MOST_BYTES = 2**28  # of a file of a report; the largest committed one has 3 MB


def read_file(path: Path, command: str) -> bytes:
    """Return the content of a file of a report, which `command` makes.

    Raises SettingError("study") if it is missing, cannot be read, is no regular file, or is larger
    than any file of a report.
    """
    try:
        return read_foreign(path, _MOST_BYTES)
    except FileNotFoundError:
        raise SettingError("study", f"there is no {path}; first: {command}") from None
    except UnfitError as unfit:
        raise damaged(path, f"is damaged: {unfit}", command) from unfit


def read_values(path: Path, command: str) -> dict[str, Any]:
    """Return the values, by name, in a JSON file of a report; see `read_file`."""
    content = read_file(path, command)
    try:
        return values_in(path.name, content)
    except UnfitError as unfit:
        raise damaged(path, f"is damaged: {unfit}", command) from unfit


def read_about(folder: Path, command: str) -> Any:
    """Return the content of study.json in `folder`, which `command` made.

    Raises SettingError("study") if the file is missing or damaged.
    """
    path = folder / "study.json"
    content = dict.fromkeys(types_of(StudyState)) | read_values(path, command)
    if fault := fault_of_fields(StudyState, content):
        raise damaged(path, f"is damaged: {fault}", command)
    return content


def damaged(path: Path, what: str, command: str) -> SettingError:
    """Return the error, of one line, of a file that `command` made and something has damaged."""
    line = printable(" ".join(what.split()))
    return SettingError("study", f"{path} {line}; restore it, or run: {command}")


@contextmanager
def replaced(folder: Path) -> Generator[Path]:
    """Yield an empty folder; when all files are written there, they replace those of `folder`.

    In a folder inside it, such as tables/, files that were
    not written again are removed. If a file cannot be written (no permission, disk full), all files
    of `folder` stay as they are, and SettingError("study") is raised.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".", dir=folder, ignore_cleanup_errors=True) as name:
            yield Path(name)
            _put(Path(name), folder)
    except OSError as error:
        raise SettingError("study", f"cannot write {folder}: {error.strerror or error}") from error


def _put(made: Path, folder: Path) -> None:
    for path in sorted(made.iterdir()):
        if path.is_file():
            path.replace(folder / path.name)
            continue
        inner = folder / path.name
        inner.mkdir(exist_ok=True)
        for old in inner.iterdir():
            if not (path / old.name).exists():
                old.unlink()
        _put(path, inner)
