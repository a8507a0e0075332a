"""Checkpoints of a running point, in the folder of its partial record.

A checkpoint is a folder to which each process of the run writes a file. The checkpoint is complete
once its folder contains `complete.json`, which lists all files. Until then, the previous checkpoint
is kept. `origin.json` identifies the point and the code that wrote the checkpoints. The files hold
only tensors and plain values, so that loading them runs no code.
"""

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from paceline.errors import SettingError
from paceline.record.foreign_file import read_values
from paceline.record.provenance import source_digest, versions

CHECKPOINTS = "checkpoint"  # folder in that of a record
ASKED = "asked"  # file in it, touched to ask the processes of the point for a checkpoint
_COMPLETE, _ORIGIN = "complete.json", "origin.json"
_DATA = "content of the data"  # in the origin, unless it is unknown


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint.

    `number`: position of this checkpoint among all of the point, from 1. `samples`: number of
    samples of all workers until it was written. `resumes`: how often the run had been resumed
    before. `sizes`: bytes of each file, by name.
    """

    number: int
    samples: int
    resumes: int
    sizes: Mapping[str, int]


def latest(record: Path) -> Checkpoint | None:
    """Return the latest complete checkpoint in the folder of a record, or None.

    Raises ValueError if its list of files is damaged.
    """
    folders = _complete_folders(record)
    if not folders:
        return None
    try:
        content = (folders[-1] / _COMPLETE).read_bytes()
    except FileNotFoundError:  # a run that still goes on has replaced it by a later one
        return latest(record)
    try:
        found = TypeAdapter(Checkpoint).validate_json(content)
    except ValidationError as error:
        raise ValueError(f"{_COMPLETE} is damaged") from error
    if folder_of(record, found.number) != folders[-1]:
        raise ValueError(f"{_COMPLETE} is that of another checkpoint, {found.number}")
    return found


def has_checkpoint(record: Path) -> bool:
    return bool(_complete_folders(record))


def folder_of(record: Path, number: int) -> Path:
    """Return the folder of the checkpoint of this number."""
    return record / CHECKPOINTS / str(number)


def begin(
    record: Path, key: str, check: Callable[[Path], None], data: str | None
) -> Checkpoint | None:
    """Prepare the folder for checkpoints of the point with this key.

    Returns the latest checkpoint of an earlier start, or None. If there are checkpoints that cannot
    be used, removes them and raises ValueError with the reason. Raises SettingError, and removes
    nothing, if they belong to another user. `check(path)` raises ValueError for a file of a
    checkpoint that must not be loaded.
    """
    folder, origin = record / CHECKPOINTS, _origin(key, data)
    _require_own(folder)
    try:
        found = _checked(record, origin, check)
    except (OSError, ValueError, TypeError, KeyError):
        discard_checkpoints(record)
        raise
    finally:
        folder.mkdir(exist_ok=True)
        (folder / _ORIGIN).write_text(json.dumps(origin))
    return found


def complete(record: Path, number: int, samples: int, resumes: int) -> None:
    """Mark a checkpoint as complete, and remove the earlier ones.

    Must be called after all processes have written their files.
    """
    folder = folder_of(record, number)
    sizes = {path.name: path.stat().st_size for path in sorted(folder.glob("*.ckpt"))}
    for path in folder.iterdir():
        sync(path)
    made = folder / f".{_COMPLETE}"
    made.write_text(json.dumps(asdict(Checkpoint(number, samples, resumes, sizes))))
    sync(made)
    made.rename(folder / _COMPLETE)
    for other in (record / CHECKPOINTS).iterdir():
        if other.name.isdigit() and int(other.name) < number:
            shutil.rmtree(other, ignore_errors=True)


def discard_checkpoints(record: Path) -> None:
    shutil.rmtree(record / CHECKPOINTS, ignore_errors=True)


def _checked(
    record: Path, origin: Mapping[str, Any], check: Callable[[Path], None]
) -> Checkpoint | None:
    folder = record / CHECKPOINTS
    if not has_checkpoint(record):
        if any(folder.glob("*/*.ckpt")):
            raise ValueError("it is incomplete")
        return None
    written = {_DATA: origin.get(_DATA)} | read_values(folder / _ORIGIN)
    if written["key"] != origin["key"]:
        raise ValueError(f"it belongs to another point, {written['key']}")
    for name in origin:
        if written[name] != origin[name]:
            raise ValueError(f"it was written with a different {name}")
    found = latest(record)
    assert found is not None
    for name, size in found.sizes.items():
        path = folder_of(record, found.number) / name
        if not path.exists() or path.stat().st_size != size:
            raise ValueError(f"{name} is incomplete")
        check(path)
    return found


def _require_own(folder: Path) -> None:
    """Raise SettingError if the folder, or anything in it, belongs to another user."""
    for path in (folder, *folder.rglob("*")) if folder.is_symlink() or folder.exists() else ():
        if path.lstat().st_uid != os.geteuid():
            message = f"{path} belongs to another user; copy {folder} to resume from it, or remove"
            raise SettingError("training.checkpoint_seconds", f"{message} it")


def _origin(key: str, data: str | None) -> dict[str, Any]:
    known = {} if data is None else {_DATA: data}  # data that the run itself will download are not
    return {"key": key, "code": source_digest(), "set of package versions": versions(), **known}


def _complete_folders(record: Path) -> list[Path]:
    found = (record / CHECKPOINTS).glob(f"*/{_COMPLETE}")
    folders = [path.parent for path in found if path.is_file()]
    numbered = [folder for folder in folders if folder.name.isdecimal()]
    return sorted(numbered, key=lambda folder: int(folder.name))


def sync(path: Path) -> None:
    """Wait until a file or the list of a folder's files is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
