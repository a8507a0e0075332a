"""Reads and writes tables as CSV files; each column read has a type, text or number."""

import io
from pathlib import Path
from typing import Any, TypeAlias

import pandas as pd

from paceline.errors import SettingError
from paceline.record.numbers import NUMBERS

# A DataFrame. pandas annotates each selection as DataFrame or Series, so Any it is.
Frame: TypeAlias = Any
Entry: TypeAlias = Any  # value of a cell of a Frame
Row = dict[str, Entry]  # entries by column

_TEXT = {"key", "status", "reason", "kind", "study", "started", "scheme", "data", "model"}
_TEXT |= {"cluster", "half", "commit", "source_digest", "hardware.cpu", "phase", "name", "value"}
_TEXT |= {"at_edge", "right", "reference", "baseline", "target_set_by", "fault_reason"}
_VERDICTS = ("verdict", "_half")  # ends of names of columns that are text
_TEXT |= {number.name for number in NUMBERS if number.unit == "text"}
DIGITS = 9  # significant digits of numbers in the tables of conclusions


def require(path: Path, command: str) -> Path:
    """Return `path` if the file exists.

    Raises SettingError("study"), which names the `command` that makes the file, if it does not.
    """
    if not path.is_file():
        raise SettingError("study", f"there is no {path}; first: {command}")
    return path


def read_table(source: Path | io.StringIO) -> Frame:
    """Read a CSV; a column is text if it is declared so, or if a cell of it is not a number.

    All other columns are numeric, with NaN for empty cells.
    """
    text = pd.read_csv(source, dtype=str, keep_default_na=False)
    return text.apply(_typed) if len(text) else text


def write_table(path: Path, table: Frame, *, exact: bool = False) -> None:
    """Write a CSV with DIGITS significant digits, or with all digits if `exact`."""
    form = None if exact else f"%.{DIGITS}g"
    table.to_csv(path, index=False, float_format=form, lineterminator="\n")


def as_written(table: Frame) -> Frame:
    """Round numbers as in a written table, so that verdicts follow from the numbers it shows."""
    numbers = table.select_dtypes("float")
    return table.assign(**numbers.map(lambda number: float(f"{number:.{DIGITS}g}")))


def _typed(column: pd.Series) -> pd.Series:
    name = str(column.name)
    if name in _TEXT or name.startswith("versions.") or name.endswith(_VERDICTS):
        return column
    try:
        return pd.Series(pd.to_numeric(column.astype(object).replace("", None)), column.index)
    except ValueError:
        return column
