"""Reads and writes tables as CSV files; each column read has a type, text or number."""

import io
from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_origin, get_type_hints

import pandas as pd

from paceline.record.report_files import damaged, read_file
from paceline.record.result import NUMBERS, ResultFields

# A DataFrame. pandas annotates each selection as DataFrame or Series, so Any it is.
Frame: TypeAlias = Any
Entry: TypeAlias = Any  # value of a cell of a Frame
Row = dict[str, Entry]  # entries by column

_RESULT = get_type_hints(ResultFields).items()
_TEXT = {name for name, hint in _RESULT if hint is str or get_origin(hint) is Literal}
_TEXT |= {number.name for number in NUMBERS if number.unit == "text"}
_TEXT |= {"hardware.cpu", "at_edge", "own", "half", "phase", "right"}
DIGITS = 9  # significant digits of numbers in the tables of conclusions


def read_table(path: Path, command: str, numbers: Collection[str] = ()) -> Frame:
    """Read a CSV that `command` wrote; see `typed_table`.

    Raises SettingError("study"), which names the command, if the file is missing or damaged.
    """
    try:
        return typed_table(read_file(path, command), numbers)
    except ValueError as error:
        raise damaged(path, f"is damaged: {error}", command) from error


def typed_table(content: bytes, numbers: Collection[str] = ()) -> Frame:
    """Read a CSV; a column is text if it is declared so, or if a cell of it is not a number.

    All other columns are numeric, with NaN for empty cells. Raises ValueError, with the problem in
    one line, if the content is no CSV, or if a cell of the columns `numbers` is not a number.
    """
    text = content.decode()
    if not text.endswith("\n") or "\0" in text or text.startswith("\ufeff"):
        raise ValueError("it is empty, cut off or no plain text")
    table = pd.read_csv(io.StringIO(text), dtype=str, keep_default_na=False)
    if not isinstance(table.index, pd.RangeIndex):
        raise ValueError("row 1 has more cells than there are columns")
    if not len(table):
        return table.astype({name: float for name in table if name in numbers})
    # texts as Python's: where a table has a hundred rows, selecting some is four times as fast
    texts: Frame = table.astype(object)
    return pd.DataFrame({name: _typed(texts[name], numbers) for name in texts}).copy()


def as_csv(table: Frame) -> str:
    """Return a CSV with DIGITS significant digits."""
    return table.to_csv(index=False, float_format=f"%.{DIGITS}g", lineterminator="\n")


def as_written(table: Frame) -> Frame:
    """Return a table as its CSV says it: with rounded numbers, and without a missing text.

    Verdicts thus follow from the numbers that are shown.
    """
    return table.assign(**{name: _written(table[name]) for name in table})


def _written(column: Frame) -> Frame:
    if any(isinstance(value, str) for value in column):
        return column.astype(object).where(column.notna(), "").astype(str)
    if pd.api.types.is_integer_dtype(column):
        return column
    return column.astype(float).map(lambda number: float(f"{number:.{DIGITS}g}"))


def setting(value: Entry) -> str:
    """Format the value of an axis; an empty one is "null"."""
    if pd.isna(value):
        return "null"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _typed(column: pd.Series, numbers: Collection[str]) -> pd.Series:
    name = str(column.name)
    if name in _TEXT or name.startswith("versions."):
        return column
    cells = column.astype(object).replace("", None)
    try:
        return pd.Series(pd.to_numeric(cells), column.index)
    except ValueError:
        if name not in numbers:
            return column
        known: Frame = pd.to_numeric(cells, errors="coerce")
        row = int((known.isna() & cells.notna()).argmax())
        raise ValueError(f"row {row + 1}, {name}: a number is needed, not {cells[row]!r}") from None
