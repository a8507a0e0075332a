"""Digests of the content of files. Bytes are only read again if sizes or times have changed."""

import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

_KEPT = Path("runs/.content")  # digests of bytes, by digests of sizes and times
_FRESH_SECONDS = 2.0  # a file as young as this may change again without another time


def content_digest(files: Mapping[str, str | Path]) -> str:
    """Return a digest of the names and the bytes of `files`, as 64 hexadecimal digits.

    Names are those in the mapping, so that files may move. Links are followed. While no size, time
    or inode changes, a digest is kept in runs/ of the working directory; finding that out takes
    about a second per 100,000 files. Raises OSError for a file that cannot be read.
    """
    found = {name: os.stat(path) for name, path in sorted(files.items())}  # noqa: PTH116
    versions = [(n, s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino) for n, s in found.items()]
    kept = _KEPT / hashlib.sha256(json.dumps(versions).encode()).hexdigest()
    with suppress(OSError):
        return kept.read_text()
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        contents = list(threads.map(_digest, (files[name] for name in found)))
    digest = hashlib.sha256(json.dumps([*zip(found, contents, strict=True)]).encode()).hexdigest()
    if max((s.st_ctime for s in found.values()), default=0.0) < time.time() - _FRESH_SECONDS:
        with suppress(OSError):  # it is only computed again
            _KEPT.mkdir(parents=True, exist_ok=True)
            written = kept.with_suffix(f".{os.getpid()}")
            written.write_text(digest)
            written.replace(kept)
    return digest


def _digest(path: str | Path) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def files_below(folder: Path) -> Iterator[str]:
    """Yield the paths of all files in `folder` and below it, sorted by folder, then by name.

    Links are followed, but not into a folder a second time. Files and folders whose names begin
    with a dot are left out. Raises OSError for a folder that cannot be read.
    """
    found, seen = list[tuple[str, list[str]]](), set[tuple[int, int]]()

    def fail(error: OSError) -> None:
        raise error

    for parent, folders, names in os.walk(str(folder), followlinks=True, onerror=fail):
        at = Path(parent).stat()
        is_new = (at.st_dev, at.st_ino) not in seen
        seen.add((at.st_dev, at.st_ino))
        folders[:] = [name for name in folders if is_new and not name.startswith(".")]
        if is_new:
            found.append((parent, sorted(name for name in names if not name.startswith("."))))
    for parent, names in sorted(found):
        yield from (f"{parent}/{name}" for name in names)  # a Path takes ten times as long
