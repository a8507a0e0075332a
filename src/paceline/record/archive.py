"""Archive of a study's records, `records.zip`, by which they travel where runs/ does not.

It has the settings, the result and the tables of each record: no weights, and no marker of a log.
"""

import json
import re
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile, ZipInfo

from paceline.errors import SettingError
from paceline.measurement.rows import POINT_TABLES
from paceline.record.reading import read_result
from paceline.record.record import PartialRecord

ARCHIVE = "records.zip"
_NEEDED = ("config.yaml", "result.json")
_FILES = (*_NEEDED, *(f"{table.name}.csv" for table in POINT_TABLES))
_KEY = re.compile("[0-9a-f]{12}")
_DATE = (1980, 1, 1, 0, 0, 0)  # of all members, so that equal records give equal bytes
_UNIX, _MODE, _LEVEL = 3, 0o644 << 16, 9
_BROKEN = (
    BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    KeyError,
)


def write_archive(path: Path, folders: Iterable[Path]) -> None:
    """Write the records in `folders` to the archive `path`; equal records give equal bytes."""
    made = path.with_name(f".{path.name}")
    with ZipFile(made, "w", ZIP_DEFLATED, compresslevel=_LEVEL) as archive:
        for folder in sorted(folders, key=lambda each: each.name):
            for name in _FILES:
                if (folder / name).exists():
                    member = ZipInfo(f"{folder.name}/{name}", _DATE)
                    member.create_system, member.external_attr = _UNIX, _MODE
                    member.compress_type = ZIP_DEFLATED
                    archive.writestr(member, (folder / name).read_bytes(), compresslevel=_LEVEL)
    made.replace(path)


def unpack_archive(path: Path, runs: Path) -> int:
    """Unpack the records that the folder `runs` lacks; return their number.

    Raises SettingError("study") for an archive that cannot be read, before anything is unpacked.
    """
    try:
        with ZipFile(path) as archive:
            records = {
                key: {name: archive.read(f"{key}/{name}") for name in names}
                for key, names in _members(archive).items()
                if read_result(runs / key) is None
            }
        results = {key: _result(key, files) for key, files in records.items()}
    except (*_BROKEN, OSError) as error:
        message = f"{path} cannot be read: {' '.join(str(error).split())}; remove or restore it"
        raise SettingError("study", message) from error
    for key, files in records.items():
        partial = PartialRecord(runs / key)
        for name, content in files.items():
            partial.write_file(name, content)
        partial.complete(results[key])
    return len(records)


def _members(archive: ZipFile) -> dict[str, list[str]]:
    """Return the names of each record's files by key. Raises ValueError for any other file."""
    records: dict[str, list[str]] = {}
    for path in archive.namelist():
        key, _, name = path.partition("/")
        if not _KEY.fullmatch(key) or name not in _FILES:
            raise ValueError(f"{path} is no file of a record")
        records.setdefault(key, []).append(name)
    return records


def _result(key: str, files: Mapping[str, bytes]) -> Mapping[str, object]:
    """Return the result of a record. Raises ValueError or KeyError if it is not whole."""
    missing = [name for name in _NEEDED if name not in files]
    if missing:
        raise ValueError(f"the record {key} has no {missing[0]}")
    result = json.loads(files["result.json"])
    if result["key"] != key:
        raise ValueError(f"the record {key} is of {result['key']}")
    return result
