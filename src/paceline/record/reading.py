"""Reads and checks records. An invalid attempt counts as missing.

Of the valid attempts of a record, the latest that did not fail counts, else the latest. If none is
valid, users are told the reason. The files of an attempt must be regular, complete and not too
large. `result.json` and the tables must follow `result.py` and `rows.py`. The names of the folders,
the key in the result, and the key of the settings must agree. Records in an archive pass the same
check. Reading imports and builds nothing that a record names, except the classes of Paceline's
settings.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from paceline.errors import SettingError
from paceline.record import foreign_file
from paceline.record.foreign_file import UnfitError, read_foreign, text_in, values_in
from paceline.record.key import RETIRED
from paceline.record.point_config import PointConfig, flat_settings
from paceline.record.record import attempts
from paceline.record.result import Result, fault_of_result
from paceline.record.rows import POINT_TABLES
from paceline.record.target import foreign_target

_SAME = ("workers", "batch_size", "seed", "study")  # in the result as in the settings
_NEEDED = ("config.yaml", "result.json")
_TABLES = ("curve", "staleness", "phases")  # of every training that did not fail
# Bytes of each file of a record.
MOST_BYTES: Mapping[str, int] = {
    **dict.fromkeys(_NEEDED, foreign_file.MOST_BYTES),
    **{f"{table.name}.csv": 2**23 for table in POINT_TABLES},
}


_Read = Callable[[Path, Path], Result | str | None]
_Version = tuple[str, int, int, int]  # name, time, size and inode of a file
_read: dict[Path, tuple[list[_Version], Result]] = {}  # valid records as they were last read


def read_result(record: Path) -> Result | None:
    """Return the result of the attempt of a record that counts; None if none is valid."""
    found = _chosen(record, _found)
    return found[1] if isinstance(found, tuple) else None


def read_alone(record: Path) -> Result | None:
    """Return what `read_result` does, without a check of files other than result.json.

    That takes a fiftieth of the time.
    """
    found = _chosen(record, partial(_found, alone=True))
    return found[1] if isinstance(found, tuple) else None


def latest_result(record: Path) -> Result | None:
    """Return the result of the latest attempt, also of one that failed after a success."""
    found = _found(attempts(record)[0], record)
    return None if isinstance(found, str) else found


def fault_of(record: Path) -> str | None:
    """Return in one line why no attempt is valid; None if one is, or if there is none."""
    found = _chosen(record, _found)
    return found if isinstance(found, str) else None


def chosen_attempt(record: Path) -> Path:
    """Return the folder of the attempt that counts: the latest that did not fail, if there is one.

    Raises SettingError("key") if no attempt is valid.
    """
    return _require(record)[0]


def require_fit(record: Path) -> Result:
    """Read the result of the attempt that counts. Raises SettingError("key") if none is valid."""
    return _require(record)[1]


def read_config(record: Path) -> PointConfig:
    """Read the settings of a record. Raises SettingError("key") if no attempt is valid."""
    content = (chosen_attempt(record) / "config.yaml").read_bytes()
    return PointConfig(_settings(content), of_record=True)


def checked_result(files: Mapping[str, bytes], study: str, key: str) -> Result:
    """Return the result of a record, whose `files` are given by name.

    `study`, `key`: names of the folders in which the record is. Raises ValueError with the reason,
    on one line, if the record is invalid.
    """
    for name in _NEEDED:
        if name not in files:
            raise UnfitError(name, "there is no such file")
    result = _result(files["result.json"])
    config = PointConfig(_settings(files["config.yaml"]), of_record=True)
    _check_place(study, key, result, config)
    for table in POINT_TABLES:
        name, fault = f"{table.name}.csv", None
        if name in files:
            fault = table.fault_of(text_in(name, files[name]))
        elif table.name in _TABLES and result["status"] != "failed":
            fault = "there is no such file"
        if fault:
            raise UnfitError(name, fault)
    return result


def record_version(record: Path) -> int | None:
    """Return a number that changes with each new attempt; None if there is none."""
    files = [folder / "result.json" for folder in attempts(record)]
    return next((file.stat().st_mtime_ns for file in files if file.exists()), None)


def _require(record: Path) -> tuple[Path, Result]:
    found = _chosen(record, _found)
    if found is None:
        raise SettingError("key", f"there is no record in {record}")
    if isinstance(found, str):
        raise SettingError("key", f"the record {record} does not fit: {found}")
    return found


def _chosen(record: Path, read: _Read) -> tuple[Path, Result] | str | None:
    """Return the attempt that counts and its result, or why the latest attempt is invalid.

    `read(folder, record)` returns the result of an attempt, or the reason why it is invalid; None
    if it is missing.
    """
    failed, fault = None, None
    for folder in attempts(record):
        found = read(folder, record)
        if isinstance(found, str):
            fault = fault or found
        elif found is not None and found["status"] != "failed":
            return folder, found
        elif found is not None:
            failed = failed or (folder, found)
    return failed or fault


def _found(folder: Path, record: Path, *, alone: bool = False) -> Result | str | None:
    """Return the result of an attempt, or the reason why it is invalid; None if it is missing.

    `alone`: only result.json is read.
    """
    try:
        (folder / "result.json").lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return f"result.json: {error.strerror}"
    try:
        if alone:
            return _result(read_foreign(folder / "result.json"))
        tables = (f"{table.name}.csv" for table in POINT_TABLES)
        names = [*_NEEDED, *(name for name in tables if (folder / name).exists())]
        versions = [_version(folder, name) for name in names]
        if folder not in _read or _read[folder][0] != versions:
            files = {name: read_foreign(folder / name, MOST_BYTES[name]) for name in names}
            _read[folder] = versions, checked_result(files, record.parent.name, record.name)
        return _read[folder][1]
    except OSError as error:
        return f"{Path(error.filename or folder).name}: {error.strerror}"
    except UnfitError as unfit:
        return str(unfit)


def _version(folder: Path, name: str) -> _Version:
    found = (folder / name).stat()
    return name, found.st_mtime_ns, found.st_size, found.st_ino


def _check_place(study: str, key: str, result: Result, config: PointConfig) -> None:
    """Raise UnfitError unless folder, key and settings agree, and for a class of another room."""
    if result["key"] != key:
        raise UnfitError("result.json", f"its key is {result['key']}, not {key}")
    try:
        foreign = foreign_target(config.values, any_package=True)
        gone = {*config.values, *flat_settings(config.values)} & {*RETIRED}
        own, values = config.key, config.values
        same = {name: values[name] for name in _SAME} | config.names
    except Exception as error:  # settings of any shape
        what = " ".join(str(error).split()) or type(error).__name__
        raise UnfitError("config.yaml", f"these are not the settings of a point: {what}") from error
    if foreign:
        raise UnfitError("config.yaml", foreign)
    if gone:
        message = f"it is of an earlier version, whose setting {min(gone)} is gone"
        raise UnfitError("config.yaml", f"{message}")
    if own != key:
        raise UnfitError("config.yaml", f"its settings have the key {own}, not {key}")
    if same["study"] != study:
        raise UnfitError("config.yaml", f"it belongs to the study {same['study']!r}")
    for name, value in same.items():
        if name in result and result[name] != value:
            raise UnfitError("result.json", f"{name} is {result[name]!r}, not {value!r}")


def _result(content: bytes) -> Result:
    result = values_in("result.json", content)
    if fault := fault_of_result(result):
        raise UnfitError("result.json", fault)
    return result


def _settings(content: bytes) -> dict[str, Any]:
    if b"${" in content:  # OmegaConf would replace it when an object is built
        raise UnfitError("config.yaml", "it has an interpolation, ${...}")
    return values_in("config.yaml", content)
