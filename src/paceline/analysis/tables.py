"""Reads what `paceline collect` left in `reports/<study>/`, with types."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypedDict

import pandas as pd

from paceline.errors import SettingError
from paceline.measurement.numbers import NUMBERS
from paceline.measurement.rows import POINT_TABLES, PointTable

_TEXT = {"key", "status", "reason", "kind", "study", "started", "scheme", "data", "model"}
_TEXT |= {"cluster", "commit", "source_digest", "hardware.cpu", "phase", "name", "value"}
_TEXT |= {number.name for number in NUMBERS if number.unit == "text"}
_NEEDED = ("key", "status", "reason", "kind", "scheme", "data", "workers", "batch_size", "seed")
_NEEDED += ("images_per_second", "top1", "test_top1", "validation_loss", "seconds", "updates")
DIGITS = 9  # of numbers in the tables of conclusions
_LATER = ("timeline",)  # tables that reports from before a virtual clock do not have

# A DataFrame; by its own annotations each selection of one may be a Series.
Frame: TypeAlias = Any
Entry: TypeAlias = Any  # of a Frame
Row = dict[str, Entry]  # by column


class About(TypedDict):
    """study.json: the question, and which points are in the tables. Lists hold keys of points."""

    study: str
    axes: list[str]
    question: str
    num_points: int
    missing: list[str]
    other_records: list[str]
    stale_code: int


@dataclass(frozen=True)
class Tables:
    """A study as it was collected. `runs`: a row per point, in the study's order; the others have
    rows of each point, by `key`.
    """

    about: About
    runs: Frame
    curves: Frame
    staleness: Frame
    phases: Frame
    timeline: Frame

    @property
    def axes(self) -> list[str]:
        """Columns of `runs` that tell one configuration from another: all axes but the seed."""
        return ["scheme", *self.facets, "workers"]

    @property
    def facets(self) -> list[str]:
        """Axes other than scheme, workers and seed, without those that the scheme implies.

        batch_size is always among them, and first.
        """
        core = ("scheme", "batch_size", "workers", "seed")
        names = [name for name in self.about["axes"] if name not in core]
        return ["batch_size", *(name for name in names if not self._implied_by_scheme(name))]

    def _implied_by_scheme(self, name: str) -> bool:
        """Whether `name` is a setting of schemes of which none has more than one value."""
        if not name.startswith("scheme."):
            return False
        return bool(self.runs.groupby("scheme")[name].nunique(dropna=False).max() == 1)

    @property
    def finished(self) -> Frame:
        """The only points that enter a mean; the others are counted and shown."""
        return self.runs[self.runs["status"] == "finished"]


def read_tables(folder: Path) -> Tables:
    """Read a study.

    Raises SettingError("study") where `collect` has not run, or left other columns.
    """
    study = folder.name
    if not (folder / "runs.csv").is_file():
        message = f"there is no {folder / 'runs.csv'}; first: paceline collect {study}"
        raise SettingError("study", message)
    first = f"paceline collect {study}"
    tables = Tables(
        about=json.loads(require(folder / "study.json", first).read_text()),
        runs=read_table(folder / "runs.csv"),
        **{table.collected: _of_points(table, folder, first) for table in POINT_TABLES},
    )
    missing = [n for n in (*_NEEDED, *tables.axes) if n not in tables.runs]
    if missing or tables.runs.empty:
        what = f"has no column {missing[0]}" if missing else "has no point"
        message = f"{folder / 'runs.csv'} {what}; first: paceline collect {study}"
        raise SettingError("study", message)
    return tables


def _of_points(table: PointTable, folder: Path, first: str) -> Frame:
    path = folder / f"{table.collected}.csv"
    if table.name in _LATER and not path.is_file():
        return pd.DataFrame(columns=["key", *table.columns])
    return read_table(require(path, first))


def require(path: Path, command: str) -> Path:
    """Return `path`, or raise a SettingError that names the `command` that makes it."""
    if not path.is_file():
        raise SettingError("study", f"there is no {path}; first: {command}")
    return path


def read_table(path: Path) -> Frame:
    """Read a CSV: numbers where a column holds nothing else, NaN for an empty cell; else text."""
    text = pd.read_csv(path, dtype=str, keep_default_na=False)
    return text.apply(_typed) if len(text) else text


def write_table(path: Path, table: Frame, *, exact: bool = False) -> None:
    """Write a CSV with DIGITS significant digits, or with all that a number has."""
    form = None if exact else f"%.{DIGITS}g"
    table.to_csv(path, index=False, float_format=form, lineterminator="\n")


def as_written(table: Frame) -> Frame:
    """Round numbers to DIGITS, so that a verdict agrees with the table that it is drawn from."""
    numbers = table.select_dtypes("float")
    return table.assign(**numbers.map(lambda number: float(f"{number:.{DIGITS}g}")))


def _typed(column: pd.Series) -> pd.Series:
    if column.name in _TEXT or str(column.name).startswith("versions."):
        return column
    try:
        return pd.Series(pd.to_numeric(column.astype(object).replace("", None)), column.index)
    except ValueError:
        return column
