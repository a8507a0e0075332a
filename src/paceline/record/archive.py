"""Archives of the records of a study.

Only the archive of a study, `records.tar.xz`, is committed to the repository. It has the settings,
the result and the tables of each record, without weights. Files of the same name are stored next to
each other, which makes the archive a third of the size of a zip file.

An archive may come from anybody. It is read in bounded memory, and refused as a whole unless each
entry is a regular file of a record. A record is unpacked only if it passes the check of
`reading.py`.
"""

import io
import lzma
import re
import stat
import tarfile
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path

from paceline.errors import SettingError
from paceline.record.reading import MOST_BYTES, checked_result, chosen_attempt, read_result
from paceline.record.record import PartialRecord
from paceline.record.result import Result

ARCHIVE = "records.tar.xz"
_NAMES = tuple(MOST_BYTES)  # of the files of a record
_ENTRY = re.compile(r"(\w+)/([a-z.]+)")  # so no folder outside of the study's
_PRESET = 6  # 9 takes twice as long and saves nothing
_MOST_UNPACKED = 2**28  # bytes; the largest committed archive has 19 MB
_BROKEN = (tarfile.TarError, lzma.LZMAError, EOFError, ValueError, OSError)

Files = Mapping[str, Mapping[str, bytes]]  # content of files by name, then by the record's key
Record = tuple[Mapping[str, bytes], Result]  # content of a record's files by name, and its result


def write_archive(path: Path, folders: Iterable[Path]) -> None:
    """Write the attempts that count of the records in `folders` to the archive `path`.

    Equal records give an archive with equal bytes. Raises SettingError("key") for an invalid one.
    """
    files: dict[str, dict[str, bytes]] = {name: {} for name in _NAMES}
    for record in folders:
        attempt = chosen_attempt(record)
        for name in _NAMES:
            if (attempt / name).exists():
                files[name][record.name] = (attempt / name).read_bytes()
    write_files(path, files)


def write_files(path: Path, files: Files) -> None:
    made = path.with_name(f".{path.name}")
    with (
        lzma.open(made, "wb", preset=_PRESET) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        for name in sorted(files):
            for key, content in sorted(files[name].items()):
                member = tarfile.TarInfo(f"{key}/{name}")  # without time and owner
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    made.replace(path)


def read_archive(path: Path) -> Files:
    """Read all files of an archive.

    Raises SettingError("study") if it is damaged, or if anything but files of records is in it.
    """
    files: dict[str, dict[str, bytes]] = {name: {} for name in _NAMES}
    with _readable(path):
        if not stat.S_ISREG(path.stat().st_mode):
            raise ValueError("it is not a regular file")
        with lzma.open(path) as packed:
            content = packed.read(_MOST_UNPACKED + 1)
        if len(content) > _MOST_UNPACKED:
            raise ValueError(f"it has more than {_MOST_UNPACKED:,} bytes when it is unpacked")
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
            for member in archive:
                entry = _ENTRY.fullmatch(member.name)
                is_plain = member.type == tarfile.REGTYPE and not member.issparse()
                if entry is None or entry[2] not in _NAMES or not is_plain:
                    raise ValueError(f"{member.name[:99]!r} is not a file of a record")
                if member.size > MOST_BYTES[entry[2]]:
                    raise ValueError(f"{member.name} has {member.size:,} bytes, too many")
                file = archive.extractfile(member)
                files[entry[2]][entry[1]] = file.read() if file else b""
    return files


def missing_records(path: Path, runs: Path) -> dict[str, Record]:
    """Return those records of an archive that are missing in `runs`, by key.

    `runs`: folder of the study's records. Raises SettingError("study") as `read_records` does.
    """
    return read_records(path, runs.name, lambda key: read_result(runs / key) is None)


def read_records(
    path: Path, study: str, wanted: Callable[[str], bool] = lambda _: True
) -> dict[str, Record]:
    """Return the files and the result of the records of a study whose keys are `wanted`, by key.

    Raises SettingError("study"), which names a record, if the archive cannot be read, or if one of
    these records is invalid.
    """
    records: dict[str, dict[str, bytes]] = {}
    for name, by_key in read_archive(path).items():
        for key, content in by_key.items():
            records.setdefault(key, {})[name] = content
    found: dict[str, Record] = {}
    for key, files in sorted(records.items()):
        if wanted(key):
            with _readable(path, f"record {key}: "):
                found[key] = files, checked_result(files, study, key)
    return found


def write_records(records: Mapping[str, Record], runs: Path) -> None:
    """Add records to `runs`, each as an attempt of its own."""
    for key, (files, result) in records.items():
        partial = PartialRecord(runs / key)
        older = read_result(runs / key)  # as of a process that ended while it added its attempt
        if older is not None and older["status"] != "failed":
            partial.discard()
            continue
        try:
            for name, content in files.items():
                if name != "result.json":  # which makes a record complete
                    partial.write_file(name, content)
            partial.complete(result)
        except BaseException:
            partial.discard()
            raise


@contextmanager
def _readable(path: Path, where: str = "") -> Generator[None]:
    """Turn any error inside that a damaged archive causes into SettingError("study")."""
    try:
        yield
    except _BROKEN as error:
        message = f"{path} cannot be read: {where}{' '.join(str(error).split())}"
        raise SettingError("study", f"{message}; an intact copy is needed, or none") from error
