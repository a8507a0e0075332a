"""Ownership of a record in the making: by lock, on any node and in any container."""

import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

_PATIENCE = 1.0  # s, longer than anybody holds a lock to look at what was left behind
_PARTIAL = re.compile(r"\.([0-9a-f]{12})\.partial")


def partial_folder(final: Path) -> Path:
    """Return the hidden folder in which the record `final` is made."""
    return final.parent / f".{final.name}.partial"


def lock_of(partial: Path) -> Path:
    """Return the file that whoever makes the record in a partial folder holds locked."""
    return partial.with_name(f"{partial.stem}.lock")


def partial_records(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the key and the folder of each partial record in the folder of a study."""
    for path in sorted(folder.glob(".*")):
        if match := _PARTIAL.fullmatch(path.name):
            yield match[1], path


def is_under_way(partial: Path) -> bool:
    """Return whether a process makes the record of this partial folder."""
    with left_behind(partial) as left:
        return not left


@contextmanager
def left_behind(partial: Path) -> Generator[bool]:
    """Yield whether nobody makes the record of this partial folder; nobody begins inside.

    A lock that this process may not open counts as held.
    """
    lock = Lock(lock_of(partial))
    try:
        lock.acquire(patience=0)
    except (Timeout, OSError):
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


class Lock:
    """A lock whose file is there only while it is held."""

    def __init__(self, path: Path) -> None:
        self._lock = FileLock(path)

    def acquire(self, patience: float = _PATIENCE) -> None:
        """Raises Timeout if another holds the lock for longer than `patience` [s], or OSError."""
        self._lock.acquire(timeout=patience, poll_interval=0.01)

    def release(self) -> None:
        """Let go; without effect unless it is held."""
        if self._lock.is_locked:
            with suppress(OSError):
                Path(self._lock.lock_file).unlink()  # whoever waits for it asks for a new one
            self._lock.release()
