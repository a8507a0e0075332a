"""Digest of the content of a point's data, by which a record is known to be of other data."""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from paceline.data.content import content_digest, files_below
from paceline.errors import SettingError
from paceline.record.target import Target

_DECODED = re.compile(r"prepared/\w+-[0-9a-f]{12}\b.*")  # files that Paceline writes into a root

_known = dict[str, str | None]()  # by the settings of the data


def look_again() -> None:
    """Forget which content the data had when it was last looked at."""
    _known.clear()


def data_digest(data: Target, *others: Any) -> str | None:
    """Return a digest of the content of the data set with these settings: 12 hexadecimal digits.

    For a class of Paceline it follows from `fingerprint`. For any other class it is of the files
    and folders that its settings name. Those that the settings `others` name, as of a model, are
    added. Returns None if there are no such files, or if they cannot be read. It is computed once,
    until `look_again`.
    """
    settings = repr((data.values, others))
    if settings not in _known:
        try:
            content, added = _content(data), _named(others)
        except (SettingError, OSError):
            content = added = None
        content = [content, added] if added else content
        text = json.dumps(content).encode()
        _known[settings] = None if content is None else hashlib.sha256(text).hexdigest()[:12]
    return _known[settings]


def is_of_other_data(result: Mapping[str, Any] | None, data: Target, *others: Any) -> bool:
    """Return whether a record is of data, or of files that `others` name, that now have another
    content. `result`: content of its result.json. False if the digest of the record or of the
    present data is unknown.
    """
    found = (result or {}).get("data_digest")
    return found is not None and data_digest(data, *others) not in (found, None)


def _content(data: Target) -> object:
    if not data.is_ours:
        return _named(data.values)
    from paceline.data.prepared import AbstractPreparedImageData  # torch takes seconds

    built = data.build()
    return built.fingerprint() if isinstance(built, AbstractPreparedImageData) else None


def _named(settings: Any) -> str | None:
    """Return a digest of the files that settings name; None if they name none."""
    named = [each for text in _texts(settings) for each in _files(text)]
    return content_digest(dict(named)) if named else None


def _texts(value: Any) -> Iterator[str]:
    """Yield each text among settings."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        inside: Any = cast("Any", value)
        for each in inside.values() if isinstance(value, Mapping) else inside:
            yield from _texts(each)


def _files(text: str) -> Iterator[tuple[str, str]]:
    """Yield each file that the text of a setting names, by a name that begins with the text.

    Folders in which the working directory is are left out, since runs are recorded there.
    """
    path = os.path.expanduser(text)  # noqa: PTH111 (of any text, also one that is no path)
    if os.path.isfile(path):  # noqa: PTH113
        yield text, path
    elif os.path.isdir(path) and not Path.cwd().is_relative_to(Path(path).resolve()):  # noqa: PTH112
        for file in files_below(Path(path)):
            name = str(Path(file).relative_to(path))
            if os.path.isfile(file) and not _DECODED.fullmatch(name):  # noqa: PTH113 (a whole link)
                yield f"{text}/{name}", file
