"""Digest of the content of a point's data, by which a record is known to be of other data."""

import contextlib
import csv
import glob
import hashlib
import io
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from paceline.data.content import content_digest, files_below
from paceline.errors import SettingError, tell
from paceline.record.target import Target

_LISTS = frozenset((".csv", ".json", ".jsonl", ".lst", ".tsv", ".txt", ".yaml", ".yml"))
_MOST_LISTED = 2**26  # bytes of a list: a million images
_JSON_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_YAML_MARKS = re.compile(r"(?:^|\s)-\s|:\s|[\[\]{},]")  # between the texts of a line
_BRACES = re.compile(r"\{[^{}]*\}")  # as in shards/{0000..0012}.tar, of which `glob` knows nothing
_DECODED = re.compile(r"prepared/\w+-[0-9a-f]{12}\b.*")  # files that Paceline writes into a root

_known = dict[str, str | None]()  # by the settings of the data


def look_again() -> None:
    """Forget which content the data had when it was last looked at."""
    _known.clear()


def data_digest(data: Target) -> str | None:
    """Return a digest of the content of the data set with these settings: 12 hexadecimal digits.

    For a class of Paceline it follows from `fingerprint`. For any other class it is of the files
    that its settings name, by a path or by a pattern with `*` or `{0..9}`, of the files in folders
    that they name, and of those that a file of text among them lists, relative to its folder, to a
    folder that the settings name, or, if folders are in the name, to the working directory. Returns
    None if there are no such files, or if they cannot be read. It is computed once, until
    `look_again`.
    """
    settings = repr(data.values)
    if settings not in _known:
        try:
            content = _content(data)
        except (SettingError, OSError):
            content = None
        text = json.dumps(content).encode()
        _known[settings] = None if content is None else hashlib.sha256(text).hexdigest()[:12]
    return _known[settings]


def tell_if_unfollowed(data: Target) -> None:
    """Print a line if a user's class names no files, so that nobody notices when they change."""
    if not data.is_ours and data_digest(data) is None:
        message = f"the settings of {data.values.get('_target_')} name no file or folder, so that "
        message += "records do not tell if its data change; pass the path as a setting of data"
        tell(message)


def is_of_other_data(result: Mapping[str, Any] | None, data: Target) -> bool:
    """Return whether a record is of data that now have another content.

    `result`: content of its result.json. False if the digest of the record or of the present data
    is unknown.
    """
    found = (result or {}).get("data_digest")
    return found is not None and data_digest(data) not in (found, None)


def _content(data: Target) -> object:
    if not data.is_ours:
        texts = [(name, os.path.expanduser(text)) for name, text in _texts("data", data.values)]  # noqa: PTH111
        roots = [Path(text) for _, text in texts if os.path.isdir(text)]  # noqa: PTH112
        files = {
            name: file for setting, text in texts for name, file in _files(setting, text, roots)
        }
        return content_digest(files) if files else None
    from paceline.data.prepared import AbstractPreparedImageData  # torch takes seconds

    built = data.build()
    return built.fingerprint() if isinstance(built, AbstractPreparedImageData) else None


def _texts(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield each text among settings, with its dotted name."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, Mapping | list):
        inside: Any = cast("Any", value)
        pairs = inside.items() if isinstance(value, Mapping) else enumerate(inside)
        for inner, each in pairs:
            yield from _texts(f"{name}.{inner}", each)


def _files(setting: str, text: str, roots: Sequence[Path]) -> Iterator[tuple[str, str | Path]]:
    """Yield each file that the text of a setting names, with a name that begins with the setting's.

    Folders in which the working directory is are left out, since runs are recorded there.
    """
    path = Path(text)
    if os.path.isfile(path):  # noqa: PTH113 (False for any text that is no path)
        yield setting, path
        yield from _listed_files(setting, path, roots)
    elif os.path.isdir(path) and not Path.cwd().is_relative_to(path.resolve()):  # noqa: PTH112
        for file in files_below(path):
            name = file[len(str(path)) + 1 :]
            is_whole = os.path.isfile(file)  # noqa: PTH113 (not a broken link)
            if is_whole and not _DECODED.fullmatch(name):
                yield f"{setting}/{name}", file
    elif glob.has_magic(pattern := _BRACES.sub("*", str(path))):
        for file in glob.iglob(pattern, recursive=True):  # noqa: PTH207 (which needs no folder)
            if os.path.isfile(file):  # noqa: PTH113
                yield f"{setting}:{file}", file


def _listed_files(setting: str, path: Path, roots: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    """Yield the files that a list of files names, such as a CSV of images and their labels."""
    if path.suffix.lower() not in _LISTS or path.stat().st_size > _MOST_LISTED:
        return
    for cell in {each.strip() for each in _cells(path)}:
        if not cell or _is_number(cell):
            continue
        here = [Path()] if "/" in cell else []
        for folder in (path.parent, *roots, *here):
            if os.path.isfile(file := folder / cell):  # noqa: PTH113
                yield f"{setting}:{cell}", file
                break


def _cells(path: Path) -> Iterator[str]:
    """Yield the texts of a list, of which a line of plain text has words."""
    kind, text = path.suffix.lower(), path.read_text(errors="replace")
    if kind in (".csv", ".tsv"):
        first = text.partition("\n")[0]
        mark = "\t" if kind == ".tsv" else max(",;|\t", key=first.count)
        with contextlib.suppress(csv.Error):
            for row in csv.reader(io.StringIO(text), delimiter=mark, skipinitialspace=True):
                yield from row
    elif kind in (".json", ".jsonl"):
        yield from (each[1:-1].replace("\\/", "/") for each in _JSON_TEXT.findall(text))
    else:
        for line in text.splitlines():
            parts = _YAML_MARKS.split(line) if kind in (".yaml", ".yml") else [line, *line.split()]
            yield from (part.strip().strip("\"'") for part in parts)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
