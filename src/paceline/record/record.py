"""Record of one point (training run): a folder on disk, which appears only once it is complete."""

import csv
import json
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock, Timeout

from paceline.errors import SettingError, tell
from paceline.record.checkpoint import CHECKPOINTS, discard_checkpoints, has_checkpoint, sync
from paceline.record.reading import read_result
from paceline.record.result import Result

Row = Mapping[str, Any]  # cells of a row in a CSV file


class PartialRecord:
    """An unfinished record: a hidden folder next to the place of the record.

    The folder is moved to this place when the record is complete. What an earlier process left in
    the folder is moved there first if it is complete, else removed, except checkpoints. Raises
    SettingError("study") if another process is making the record. If a file cannot be written (no
    permission, disk full), a method removes the folder and raises SettingError("study"); a complete
    record that cannot be moved stays in the folder.
    """

    def __init__(self, final: Path) -> None:
        self.final = final
        self.folder = partial_folder(final)
        self._lock = Lock(self.folder.with_suffix(".lock"))
        try:
            final.parent.mkdir(parents=True, exist_ok=True)
            self._lock.acquire()
        except Timeout as error:
            raise SettingError("study", f"another process is making the record {final}") from error
        except OSError as error:
            raise _unwritable(final, error) from error
        if _is_complete(self.folder):
            self._guard(lambda: _put(self.folder, final))
        left = final / CHECKPOINTS if not has_checkpoint(self.folder) else None  # of a failed run
        _clear(self.folder)
        self._guard(lambda: self.folder.mkdir(exist_ok=True))
        if left is not None and left.is_dir():
            discard_checkpoints(self.folder)
            self._guard(lambda: left.rename(self.folder / CHECKPOINTS))

    def write_config(self, config: Mapping[str, Any]) -> None:
        text = yaml.safe_dump(dict(config), sort_keys=False)
        self._guard(lambda: (self.folder / "config.yaml").write_text(text))

    def write_file(self, name: str, content: bytes) -> None:
        self._guard(lambda: (self.folder / name).write_bytes(content))

    def copy_files(self, source: Path, without: Collection[str]) -> None:
        """Copy the files of another record, except `without`, its result and checkpoints."""
        left = shutil.ignore_patterns(*without, _RESULT, CHECKPOINTS)
        self._guard(lambda: shutil.copytree(source, self.folder, ignore=left, dirs_exist_ok=True))

    def write_table(self, name: str, columns: Iterable[str], rows: Iterable[Row]) -> None:
        """Write the file `name`.csv. Each row has a value for every column."""
        self._guard(lambda: write_rows(self.folder / f"{name}.csv", columns, rows))

    def complete(self, result: Result) -> None:
        """Write `result.json` after all other files, then move the folder to its final place.

        An older record at that place is removed. If it outlives `result`, a line says so, and this
        record is discarded. The record of a failed point keeps its checkpoints, so that a later run
        can resume.
        """
        if outlives(self.final, result):
            tell(f"{self.final} stays as it was, since its new run failed")
            return self.discard()

        def write() -> None:
            if result.get("status") != "failed":
                discard_checkpoints(self.folder)
            made = self.folder / ".result.json"
            made.write_text(json.dumps(result, indent=1, allow_nan=False) + "\n")
            for path in self.folder.rglob("*"):
                sync(path)
            made.rename(self.folder / _RESULT)
            sync(self.folder)
            _put(self.folder, self.final)

        self._guard(write)
        self._lock.release()

    def discard(self) -> None:
        """Remove the record if it is unfinished, except a complete checkpoint to resume from."""
        if not _is_complete(self.folder):
            _clear(self.folder)
            if not has_checkpoint(self.folder):
                shutil.rmtree(self.folder, ignore_errors=True)
        self._lock.release()

    def _guard(self, write: Callable[[], object]) -> None:
        try:
            write()
        except OSError as error:
            self.discard()
            raise _unwritable(self.final, error) from error


def write_rows(path: Path, columns: Iterable[str], rows: Iterable[Row]) -> None:
    """Write a CSV file."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(columns), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _unwritable(final: Path, error: OSError) -> SettingError:
    return SettingError("study", f"cannot write the record {final}: {error.strerror or error}")


def _clear(partial: Path) -> None:
    """Remove all files of a partial record but its checkpoints."""
    for path in partial.iterdir() if partial.is_dir() else ():
        if path.name != CHECKPOINTS:
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def outlives(final: Path, result: Result) -> bool:
    """Return whether the record in `final` stays after a new run of its point with this result.

    A failure never replaces a success: a valid record of a point that finished or diverged.
    """
    older = read_result(final) if result.get("status") == "failed" else None
    return older is not None and older["status"] != "failed"


def _is_complete(partial: Path) -> bool:
    return (partial / _RESULT).is_file()


def _put(folder: Path, final: Path) -> None:
    """Move a complete record to its place, and remove an older one from there.

    The older one is moved into the new one first, so that what cannot be removed of it, such as a
    file that another machine has open, is in nobody's way.
    """
    older = ".replaced"
    with suppress(FileNotFoundError):
        final.rename(folder / older)
    folder.rename(final)
    sync(final.parent)
    shutil.rmtree(final / older, ignore_errors=True)


_PATIENCE = 1.0  # s; a process that inspects a partial record holds its lock for less
_PARTIAL = re.compile(r"\.([0-9a-f]{12})\.partial")
_RESULT = "result.json"  # written last: a record that has it is complete


def partial_folder(final: Path) -> Path:
    """Return the hidden folder of the unfinished record `final`."""
    return final.parent / f".{final.name}.partial"


def partial_records(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the key and the folder of each partial record in the folder of a study."""
    for path in sorted(folder.glob(".*")):
        if match := _PARTIAL.fullmatch(path.name):
            yield match[1], path


def is_under_way(partial: Path) -> bool:
    """Return whether a process is making the record in this partial folder.

    A lock that this process has no permission to open counts as held by another process.
    """
    lock = Lock(partial.with_suffix(".lock"))
    try:
        lock.acquire(patience=0)
    except (Timeout, OSError):
        return True
    lock.release()
    return False


class Lock:
    """A lock between processes; its file exists only while a process holds the lock."""

    def __init__(self, path: Path) -> None:
        self._lock = FileLock(path)

    def acquire(self, patience: float = _PATIENCE) -> None:
        """Wait for the lock. Raises Timeout after `patience` seconds, or OSError."""
        self._lock.acquire(timeout=patience, poll_interval=0.01)

    def release(self) -> None:
        if self._lock.is_locked:
            with suppress(OSError):
                Path(self._lock.lock_file).unlink()  # a process that waits asks for a new file
            self._lock.release()
