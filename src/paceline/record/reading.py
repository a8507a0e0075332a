"""Reads and checks records. An invalid record counts as missing, and users are told the reason.

The files of a record must be regular, complete and not too large. `result.json` and the tables must
follow `schema.py`. The names of the folders, the key in the result, and the key of the settings
must agree.
"""

import json
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import yaml

from paceline.errors import SettingError
from paceline.record.point_config import PointConfig
from paceline.record.record import Result
from paceline.record.rows import POINT_TABLES
from paceline.record.schema import fault_of_result, fault_of_tables

_MOST_BYTES = 2**26  # of a file of a record
_SAME = ("workers", "batch_size", "seed", "study")  # in the result as in the settings
_NEEDED = ("config.yaml", "result.json")
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _UnfitError(Exception):
    """Reason why a record is invalid."""


_Version = tuple[str, int, int, int]  # name, time, size and inode of a file
_read: dict[Path, tuple[list[_Version], Result | str]] = {}  # records as they were last read


def read_result(folder: Path) -> Result | None:
    """Return the content of `result.json`; None if the record is missing or invalid."""
    found = _found(folder)
    return None if isinstance(found, str) else found


def fault_of(folder: Path) -> str | None:
    """Return in one line why the record in `folder` is invalid; None if it is valid or missing."""
    found = _found(folder)
    return found if isinstance(found, str) else None


def require_fit(folder: Path) -> Result:
    """Read the result of the record in `folder`. Raises SettingError("key") if it is invalid."""
    found = _found(folder)
    if found is None:
        raise SettingError("key", f"there is no record in {folder}")
    if isinstance(found, str):
        raise SettingError("key", f"the record {folder} does not fit: {found}")
    return found


def record_version(folder: Path) -> int | None:
    """Return a number that changes when the record is replaced; None if it is missing."""
    try:
        return (folder / "result.json").stat().st_mtime_ns
    except FileNotFoundError:
        return None


def _found(folder: Path) -> Result | str | None:
    """Return the record's result, or the reason why it is invalid; None if it is missing."""
    try:
        (folder / "result.json").lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return f"result.json: {error.strerror}"
    try:
        versions = [_version(folder, name) for name in _names(folder)]
        known = _read.get(folder)
        if known is None or known[0] != versions:
            known = _read[folder] = (versions, _result(folder))
        return known[1]
    except _UnfitError as unfit:
        return str(unfit)


def _names(folder: Path) -> list[str]:
    tables = [f"{table.name}.csv" for table in POINT_TABLES]
    return [*_NEEDED, *(name for name in tables if (folder / name).exists())]


def _version(folder: Path, name: str) -> _Version:
    """Return a file's version. Raises _UnfitError unless it is regular and not too large."""
    try:
        found = (folder / name).stat()
    except OSError as error:
        raise _UnfitError(f"{name}: {error.strerror}") from error
    if not stat.S_ISREG(found.st_mode):
        raise _UnfitError(f"{name}: it is not a regular file")
    if found.st_size > _MOST_BYTES:
        raise _UnfitError(f"{name}: {found.st_size} bytes are too many")
    return name, found.st_mtime_ns, found.st_size, found.st_ino


def _result(folder: Path) -> Result | str:
    """Return the result of a record, or why it is invalid."""
    try:
        texts = {name: _text(folder / name) for name in _names(folder)}
        result, config = _json(texts["result.json"]), _config(texts["config.yaml"])
        exchange = bool(config.values.get("exchange"))
        if fault := fault_of_result(result, exchange=exchange):
            return f"result.json: {fault}"
        _check_place(folder, result, config, exchange=exchange)
    except _UnfitError as unfit:
        return str(unfit)
    if exchange:
        return result
    tables = {name.removesuffix(".csv"): texts[name] for name in texts if name not in _NEEDED}
    return fault_of_tables(tables, result["status"]) or result


def _check_place(
    folder: Path, result: Mapping[str, Any], config: PointConfig, *, exchange: bool
) -> None:
    """Raise _UnfitError unless folder, key and settings agree."""
    if result["key"] != folder.name:
        raise _UnfitError(f"result.json: its key is {result['key']}, not {folder.name}")
    try:
        key, values = config.key, config.values
        same = {name: values[name] for name in (["study"] if exchange else _SAME)}
        same |= {} if exchange else config.names
    except Exception as error:  # settings of any shape
        what = " ".join(str(error).split()) or type(error).__name__
        raise _UnfitError(f"config.yaml: these are not the settings of a point: {what}") from error
    if key != folder.name:
        raise _UnfitError(f"config.yaml: its settings have the key {key}, not {folder.name}")
    if same["study"] != folder.parent.name:
        raise _UnfitError(f"config.yaml: it belongs to the study {same['study']!r}")
    for name, value in same.items():
        if name in result and result[name] != value:
            raise _UnfitError(f"result.json: {name} is {result[name]!r}, not {value!r}")


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except OSError as error:
        raise _UnfitError(f"{path.name}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise _UnfitError(f"{path.name}: it is not text") from error


def _json(text: str) -> dict[str, Any]:
    try:
        result = json.loads(text, object_pairs_hook=_once, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise _UnfitError(f"result.json: {error}") from error
    if not isinstance(result, dict):
        raise _UnfitError("result.json: it is not an object")
    return cast("dict[str, Any]", result)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name} occurs twice")
        found[name] = value
    return found


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is not a JSON number")


def _config(text: str) -> PointConfig:
    try:
        values = yaml.load(text, _Loader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        what = " ".join(str(error).split())
        raise _UnfitError(f"config.yaml: {what}") from error
    if not isinstance(values, dict):
        raise _UnfitError("config.yaml: these are not settings")
    return PointConfig(cast("dict[str, Any]", values))
