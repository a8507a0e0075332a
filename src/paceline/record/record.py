"""Record of one point (training run): a folder on disk, named by the key of the point.

Each run of the point adds a numbered folder to it, an attempt, which appears only once it is
complete. Nothing is ever replaced or removed; `reading.py` chooses the attempt that counts. In
records of earlier code, the files of the only attempt are in the folder of the record itself.
"""

import csv
import json
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import yaml
from filelock import FileLock, Timeout

from paceline.errors import SettingError
from paceline.record.checkpoint import CHECKPOINTS, discard_checkpoints, has_checkpoint, sync
from paceline.record.result import Result

T = TypeVar("T")
Row = Mapping[str, Any]  # cells of a row in a CSV file


class PartialRecord:
    """An unfinished attempt: a hidden folder next to the record `final`.

    The folder is moved into the record when the attempt is complete. What an earlier process left
    in the folder is moved there first if it is complete, else removed, except checkpoints. Raises
    SettingError("study") if another process is making an attempt. If a file cannot be written (no
    permission, disk full), a method removes the folder and raises SettingError("study"); a complete
    attempt that cannot be moved stays in the folder.
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
            self._guard(self._put)
        _clear(self.folder)
        self._guard(lambda: self.folder.mkdir(exist_ok=True))
        left = attempts(final)[0] / CHECKPOINTS  # of a run that failed
        if left.is_dir() and not has_checkpoint(self.folder):
            discard_checkpoints(self.folder)
            self._guard(lambda: left.rename(self.folder / CHECKPOINTS))

    def write_config(self, config: Mapping[str, Any]) -> None:
        text = yaml.safe_dump(dict(config), sort_keys=False)
        self._guard(lambda: (self.folder / "config.yaml").write_text(text))

    def write_file(self, name: str, content: bytes) -> None:
        self._guard(lambda: (self.folder / name).write_bytes(content))

    def copy_files(self, source: Path, without: Collection[str]) -> None:
        """Copy the files of another attempt, except `without` and its result."""
        for file in source.iterdir():
            if file.is_file() and file.name not in (*without, _RESULT):
                self._guard(lambda file=file: shutil.copy2(file, self.folder))

    def write_table(self, name: str, columns: Iterable[str], rows: Iterable[Row]) -> None:
        """Write the file `name`.csv. Each row has a value for every column."""
        self._guard(lambda: write_rows(self.folder / f"{name}.csv", columns, rows))

    def complete(self, result: Result) -> Path:
        """Write `result.json` after all other files, then add the attempt to the record.

        Returns the folder of the attempt. That of a failed run keeps its checkpoints, so that a
        later run can resume.
        """

        def write() -> Path:
            if result.get("status") != "failed":
                discard_checkpoints(self.folder)
            made = self.folder / ".result.json"
            made.write_text(json.dumps(result, indent=1, allow_nan=False) + "\n")
            for path in self.folder.rglob("*"):
                sync(path)
            made.rename(self.folder / _RESULT)
            sync(self.folder)
            return self._put()

        folder = self._guard(write)
        self._lock.release()
        return folder

    def discard(self) -> None:
        """Remove the record if it is unfinished, except a complete checkpoint to resume from."""
        if not _is_complete(self.folder):
            _clear(self.folder)
            if not has_checkpoint(self.folder):
                shutil.rmtree(self.folder, ignore_errors=True)
        self._lock.release()

    def _put(self) -> Path:
        """Move the complete attempt into the record, with the next number."""
        self.final.mkdir(exist_ok=True)
        sync(self.final.parent)
        latest = attempts(self.final)[0]
        made = self.final / str(1 if latest == self.final else int(latest.name) + 1)
        self.folder.rename(made)
        sync(self.final)
        return made

    def _guard(self, write: Callable[[], T]) -> T:
        try:
            return write()
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


def _is_complete(partial: Path) -> bool:
    return (partial / _RESULT).is_file()


def attempts(record: Path) -> list[Path]:
    """Return the folders of a record's attempts, the latest first.

    The last one is the folder `record` itself, in which records of earlier code have their files.
    """
    numbered = [path for path in record.glob("[1-9]*") if path.name.isdecimal()]
    return [*sorted(numbered, key=lambda path: int(path.name), reverse=True), record]


def records_in(folder: Path) -> list[Path]:
    """Return the records that have an attempt, in the folder of a study, sorted by key."""
    files = [*folder.glob(f"[!.]*/{_RESULT}"), *folder.glob(f"[!.]*/[1-9]*/{_RESULT}")]
    return sorted({folder / file.relative_to(folder).parts[0] for file in files})


_PATIENCE = 1.0  # s; a process that inspects a partial record holds its lock for less
_PARTIAL = re.compile(r"\.([0-9a-f]{12})\.partial")
_RESULT = "result.json"  # written last: an attempt that has it is complete


def partial_folder(final: Path) -> Path:
    """Return the hidden folder of the unfinished attempt of the record `final`."""
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
