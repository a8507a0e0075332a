"""Archives of the records of a study, and copies of records from one study to another.

Only the archive of a study, `records.tar.xz`, is committed to the repository. It has the settings,
the result and the tables of each record, without weights. Files of the same name are stored next to
each other, which makes the archive a third of the size of a zip file.
"""

import io
import json
import lzma
import re
import tarfile
from collections.abc import Collection, Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path

from paceline.errors import SettingError
from paceline.record.point_config import PointConfig
from paceline.record.reading import read_result
from paceline.record.record import PartialRecord
from paceline.record.rows import POINT_TABLES

ARCHIVE = "records.tar.xz"
_NEEDED = ("config.yaml", "result.json")
_NAMES = (*_NEEDED, *(f"{table.name}.csv" for table in POINT_TABLES))
_KEY = re.compile(r"\w[\w.]*")  # excludes folders outside of the study's
_PRESET = 6  # 9 takes twice as long and saves nothing
_MOST_BYTES = 2**30  # when unpacked; the largest committed archive has 19 MB
_BROKEN = (tarfile.TarError, lzma.LZMAError, EOFError, ValueError, KeyError, OSError)

Files = Mapping[str, Mapping[str, bytes]]  # content of files by name, then by the record's key


def write_archive(path: Path, folders: Iterable[Path]) -> None:
    """Write the records in `folders` to the archive `path`.

    Equal records give an archive with equal bytes.
    """
    files: dict[str, dict[str, bytes]] = {name: {} for name in _NAMES}
    for file in (folder / name for folder in folders for name in _NAMES):
        if file.exists():
            files[file.name][file.parent.name] = file.read_bytes()
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
    """Read all files of an archive. Raises SettingError("study") if it is damaged."""
    files: dict[str, dict[str, bytes]] = {name: {} for name in _NAMES}
    with _readable(path):
        with lzma.open(path) as packed:
            content = packed.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise ValueError(f"it holds more than {_MOST_BYTES} bytes")
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
            for member in archive:
                key, _, name = member.name.partition("/")
                file = archive.extractfile(member) if member.isreg() else None
                if file is None or name not in files or not _KEY.fullmatch(key):
                    raise ValueError(f"{member.name} is not a file of a record")
                if key in files[name]:
                    raise ValueError(f"{member.name} occurs twice")
                files[name][key] = file.read()
    return files


def unpack_archive(path: Path, runs: Path) -> int:
    """Unpack the records that are missing in the folder `runs`; return their number.

    Raises SettingError("study") if the archive is damaged, before anything is unpacked.
    """
    files = read_archive(path)
    keys = {key for by_key in files.values() for key in by_key}
    lacking = sorted(key for key in keys if read_result(runs / key) is None)
    with _readable(path):
        results = {key: _result(key, files) for key in lacking}
    for key in lacking:
        partial = PartialRecord(runs / key)
        for name, by_key in files.items():
            if key in by_key:
                partial.write_file(name, by_key[key])
        partial.complete(results[key])
    return len(lacking)


@contextmanager
def _readable(path: Path) -> Generator[None]:
    """Turn any error inside that a damaged archive causes into SettingError("study")."""
    try:
        yield
    except _BROKEN as error:
        message = f"{path} cannot be read: {' '.join(str(error).split())}; remove or restore it"
        raise SettingError("study", message) from error


def _result(key: str, files: Files) -> Mapping[str, object]:
    """Return the result of a record. Raises ValueError or KeyError if the record is incomplete."""
    for name in _NEEDED:
        if key not in files[name]:
            raise ValueError(f"the record {key} has no {name}")
    result = json.loads(files["result.json"][key])
    if result["key"] != key:
        raise ValueError(f"the record {key} names the key {result['key']}")
    return result


def record_elsewhere(folder: Path, digest: str) -> Path | None:
    """Return the folder of a record of the same point in another study, or None.

    `folder`: runs/<study>/<key> of the point. `digest`: the digest of the present source (see
    `source_digest`), which the record must have as well. Only records of the virtual clock are
    returned, since their times do not depend on the state of the machine. Records of failed points
    are never returned.
    """
    for path in sorted(folder.parent.parent.glob(f"[!.]*/{folder.name}/result.json")):
        result = read_result(path.parent)
        if path.parent == folder or result is None or result["status"] == "failed":
            continue
        if result["kind"] == "virtual" and result["source_digest"] == digest:
            return path.parent
    return None


def copy_record(source: Path, folder: Path, config: PointConfig, without: Collection[str]) -> None:
    """Copy the record in `source` to `folder`, with the study and the settings of `config`.

    `without`: names of files that are not copied. Raises SettingError("study") if the copy cannot
    be written; no partial copy is left then.
    """
    result = read_result(source)
    assert result is not None
    partial = PartialRecord(folder)
    partial.copy_files(source, without)
    partial.write_config(config.values)
    partial.complete({**result, "study": config.study, **config.names})
