"""Reads files that anybody may have written: of records, archives, reports and checkpoints.

They are read only if they are regular and not too large, and what is wrong with one is told in a
printable line that names it. Nothing that a file names is imported or built.
"""

import json
import stat
from pathlib import Path
from typing import Any, cast

import yaml

from paceline.errors import printable

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MOST_LISTS = 2**13  # twice as many, one in the other, end the process, as the loader is in C
_LONGEST = 300  # characters of a reason
MOST_BYTES = 2**20  # of a file of settings or of a result; the largest committed one has 40 kB


class UnfitError(ValueError):
    """Reason why a file is not read, on one line that begins with its name."""

    def __init__(self, name: str, reason: object) -> None:
        line = printable(" ".join(f"{name}: {reason}".split()))
        super().__init__(line if len(line) <= _LONGEST else f"{line[:_LONGEST]}...")


def read_foreign(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """Return the content of a file.

    Raises FileNotFoundError if it is missing, and UnfitError if it cannot be read, is not regular,
    or has more than `most_bytes`.
    """
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise UnfitError(path.name, "it is not a regular file")
        if found.st_size > most_bytes:
            raise UnfitError(path.name, f"{found.st_size} bytes are too many")
        return path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UnfitError(path.name, error.strerror) from error


def text_in(name: str, content: bytes) -> str:
    """Return the text in the content of the file `name`. Raises UnfitError if it is none."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise UnfitError(name, "it is not text") from error


def values_in(name: str, content: bytes) -> dict[str, Any]:
    """Return the values, by name, in the content of the JSON or YAML file `name`.

    Raises UnfitError if there are none.
    """
    text = text_in(name, content)
    try:
        if name.endswith(".json"):
            found: Any = json.loads(text)
            # raises ValueError for numbers and texts that no file can have
            json.dumps(found, allow_nan=False, ensure_ascii=False).encode()
        elif sum(map(text.count, ("[", "{", "- ", "? "))) > _MOST_LISTS:
            raise ValueError("it has too many lists")
        else:
            found = yaml.load(text, _Loader)
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise UnfitError(name, error) from error
    if not isinstance(found, dict):
        raise UnfitError(name, "it has no values by name")
    return cast("dict[str, Any]", found)


def read_values(path: Path) -> dict[str, Any]:
    """Return the values, by name, in a JSON or YAML file; see `read_foreign` and `values_in`."""
    return values_in(path.name, read_foreign(path))
