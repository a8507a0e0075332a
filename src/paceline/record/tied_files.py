"""Writes the files of a report whole or not at all, and ties them to each other by digests.

Whoever writes files of a report leaves a file of their SHA-256 digests beside them, in the form
that `sha256sum --check` reads. A file that was changed afterwards is refused when it is read.
"""

import hashlib
import stat
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from paceline.errors import SettingError

SUMS = "SHA256SUMS"  # of the files in its folder
_MOST_BYTES = 2**28  # of a file of a report; the largest committed one has 3 MB


def sums_of_predictions(path: Path) -> Path:
    """Return the file of digests of predictions.csv, which a sweep does not write."""
    return path.with_name(f"{path.name}.sha256")


class ChangedFileError(SettingError):
    """Error of a file of a report that is damaged, or was changed after it was written."""


def require(path: Path, command: str) -> Path:
    """Return `path` if something is there.

    Raises SettingError("study"), which names the `command` that makes the file, if nothing is.
    """
    if not path.exists():
        raise SettingError("study", f"there is no {path}; first: {command}")
    return path


def read_file(path: Path, command: str) -> bytes:
    """Return the content of a file of a report, which `command` makes.

    Raises SettingError("study") if it is missing, and ChangedFileError if it cannot be read, is no
    regular file, or is larger than any file of a report.
    """
    try:
        found = require(path, command).stat()
        if not stat.S_ISREG(found.st_mode):
            raise changed(path, "is not a regular file", command)
        if found.st_size > _MOST_BYTES:
            raise changed(path, f"has {found.st_size} bytes, which are too many", command)
        return path.read_bytes()
    except OSError as error:
        raise changed(path, f"cannot be read: {error.strerror}", command) from error


def changed(path: Path, what: str, command: str) -> ChangedFileError:
    return ChangedFileError("study", f"{path} {what}; restore it, or run: {command}")


def require_tied(path: Path, content: bytes, command: str, sums: Path | None = None) -> None:
    """Raise ChangedFileError unless a file has the digest that `command` left of it.

    `content`: that of the file `path`. `sums`: the file of digests; by default SUMS beside `path`.
    """
    known = _read_sums(sums or path.with_name(SUMS), command)
    if known.get(path.name) != _digest(content):
        raise changed(path, f"is not the file of the digest in {path.parent / SUMS}", command)


def tied_content(path: Path, command: str) -> bytes:
    """Return the content of a file, if it is as `command` left it; raise the errors of `read_file`
    and `require_tied`.
    """
    content = read_file(path, command)
    require_tied(path, content, command)
    return content


def require_sources(sums: Path, command: str) -> None:
    """Raise ChangedFileError unless the files of the folder above, which a file of digests names,
    are as they were when `command` wrote `sums`.
    """
    for name, digest in _read_sums(sums, command).items():
        path = sums.parent / name
        if name.startswith("../") and _digest(read_file(path, command)) != digest:
            raise changed(sums.parent, f"does not follow from the present {path.name}", command)


def digest_of(path: Path) -> str:
    """Return the SHA-256 digest of a file in hexadecimal."""
    return _digest(path.read_bytes())


def write_sums(sums: Path, files: Mapping[str, Path]) -> None:
    """Write the digests of `files`, by the name of each relative to the folder of `sums`."""
    lines = [f"{digest_of(files[name])}  {name}\n" for name in sorted(files)]
    sums.write_text("".join(lines))


@contextmanager
def replaced(folder: Path) -> Generator[Path]:
    """Yield an empty folder; when all files are written there, they replace those of `folder`.

    In a folder inside it, such as tables/, files that were not written again are removed. If a file
    cannot be written (no permission, disk full), all files of `folder` stay as they are, and
    SettingError("study") is raised.
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


def _read_sums(path: Path, command: str) -> dict[str, str]:
    """Return the digests of a file of digests, by the name of the file."""
    if not path.exists():
        raise ChangedFileError("study", f"there is no {path}; first: {command}")
    lines = read_file(path, command).decode(errors="replace").splitlines()
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines)}


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
