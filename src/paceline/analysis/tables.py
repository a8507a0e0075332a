"""What `paceline collect` left in `reports/<study>/`, with types."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pandas as pd

from paceline.errors import SettingError

_TEXT = ("key", "status", "reason", "kind", "study", "evaluated", "certificate", "started")
_TEXT += ("scheme", "data", "model", "cluster", "commit", "source_digest", "hardware.cpu", "phase")
_NEEDED = ("key", "status", "reason", "kind", "scheme", "data", "workers", "batch_size", "seed")
_NEEDED += ("images_per_second", "top1", "test_top1", "validation_loss", "seconds", "updates")
_TIMELINE = ("key", "worker", "phase", "start", "end")

# A DataFrame; by its own annotations each selection of one may be a Series.
Frame: TypeAlias = Any


@dataclass(frozen=True)
class Tables:
    """`runs`: a row per point, in the study's order; the others a row per `key` and more.

    `about`: study.json, with the study's question and the points that have no record.
    """

    about: dict[str, Any]
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
        """Axes but scheme, workers and seed, and those that the scheme tells; batch_size always,
        and first.
        """
        core = ("scheme", "batch_size", "workers", "seed")
        names = [name for name in self.about["axes"] if name not in core]
        return ["batch_size", *(name for name in names if not self._told_by_scheme(name))]

    def _told_by_scheme(self, name: str) -> bool:
        """A setting of schemes, of which none has more than one value."""
        if not name.startswith("scheme."):
            return False
        return bool(self.runs.groupby("scheme")[name].nunique(dropna=False).max() == 1)

    @property
    def finished(self) -> Frame:
        """The only points that enter a mean; the others are counted and shown."""
        return self.runs[self.runs["status"] == "finished"]


def read_tables(folder: Path) -> Tables:
    """Raises SettingError("study") where `collect` has not run, or left other columns."""
    study = folder.name
    if not (folder / "runs.csv").is_file():
        message = f"there is no {folder / 'runs.csv'}; first: paceline collect {study}"
        raise SettingError("study", message)
    tables = Tables(
        json.loads(require(folder / "study.json", f"paceline collect {study}").read_text()),
        *(
            read_table(require(folder / f"{name}.csv", f"paceline collect {study}"))
            for name in ("runs", "curves", "staleness", "phases")
        ),
        timeline=_timeline(folder / "timeline.csv"),
    )
    missing = [n for n in (*_NEEDED, *tables.axes) if n not in tables.runs]
    if missing or tables.runs.empty:
        what = f"has no column {missing[0]}" if missing else "has no point"
        message = f"{folder / 'runs.csv'} {what}; first: paceline collect {study}"
        raise SettingError("study", message)
    return tables


def _timeline(path: Path) -> Frame:
    """Seconds of the training clock; reports from before there was a virtual clock have none."""
    return read_table(path) if path.is_file() else pd.DataFrame(columns=list(_TIMELINE))


def require(path: Path, command: str) -> Path:
    """`path`, or a SettingError that names the `command` that makes it."""
    if not path.is_file():
        raise SettingError("study", f"there is no {path}; first: {command}")
    return path


def read_table(path: Path) -> Frame:
    """Numbers where a column holds nothing else; an empty cell is NaN there, "" in text."""
    text = pd.read_csv(path, dtype=str, keep_default_na=False)
    return text.apply(_typed) if len(text) else text


def write_table(path: Path, table: Frame) -> None:
    table.to_csv(path, index=False, float_format="%.9g", lineterminator="\n")


def _typed(column: pd.Series) -> pd.Series:
    if column.name in _TEXT or str(column.name).startswith("versions."):
        return column
    try:
        return pd.Series(pd.to_numeric(column.astype(object).replace("", None)), column.index)
    except ValueError:
        return column
