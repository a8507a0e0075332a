"""The tidy tables of a study, as `paceline collect` left them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from paceline.errors import SettingError

CORE = ("scheme", "workers", "batch_size")
_RUNS = (*CORE, "key", "kind", "status", "seed", "data", "model", "images_per_second", "top1")


@dataclass(frozen=True)
class Study:
    """`runs`: one row per point. `curves`, `staleness`, `phases`: their tables, with `key`.

    `about` is study.json.
    """

    folder: Path
    about: dict[str, Any]
    runs: pd.DataFrame
    curves: pd.DataFrame
    staleness: pd.DataFrame
    phases: pd.DataFrame

    @property
    def further(self) -> list[str]:
        """Axes besides scheme, workers, batch size and seed."""
        return [axis for axis in self.about["axes"] if axis not in (*CORE, "seed")]

    @property
    def configuration(self) -> list[str]:
        """Columns that name a configuration: every axis but the seed, and the kind of number."""
        return [*CORE, *self.further, "kind"]

    @property
    def finished(self) -> pd.DataFrame:
        return self.runs[self.runs["status"] == "finished"]


def read_study(folder: Path) -> Study:
    """Raises SettingError("study") that names what to run first where a table is missing."""
    first = f"paceline collect {folder.name}"
    names = ("runs", "curves", "staleness", "phases")
    runs, curves, staleness, phases = (read_table(folder / f"{name}.csv", first) for name in names)
    about = json.loads(_existing(folder / "study.json", first).read_text())
    study = Study(folder, about, runs, curves, staleness, phases)
    _require_columns(study, first)
    if runs.empty:
        raise SettingError("study", f"{folder.name} has no point yet: paceline sweep {folder.name}")
    return study


def read_table(path: Path, first: str) -> pd.DataFrame:
    """`first`: the command that makes the table. Only an empty cell is a missing value."""
    try:
        return pd.read_csv(
            _existing(path, first),
            dtype={"key": str, "commit": str, "source_digest": str},  # digits and an e are no float
            keep_default_na=False,
            na_values=[""],
        )
    except (pd.errors.EmptyDataError, pd.errors.ParserError) as error:
        raise SettingError("study", f"{path} is no table ({error}); run: {first}") from error


def groups(table: pd.DataFrame, columns: Sequence[str]) -> list[tuple[dict[str, Any], Any]]:
    """Rows with equal `columns`, in order of appearance; a missing value equals another."""
    grouped = table.groupby(list(columns), sort=False, dropna=False)
    return [(dict(zip(columns, values, strict=True)), rows) for values, rows in grouped]


def _existing(path: Path, first: str) -> Path:
    if not path.is_file():
        raise SettingError("study", f"{path} is not there; run first: {first}")
    return path


def _require_columns(study: Study, first: str) -> None:
    lost = [n for n in (*_RUNS, *study.configuration) if n not in study.runs.columns]
    if lost:
        path = study.folder / "runs.csv"
        raise SettingError("study", f"{path} has no column {', '.join(lost)}; run: {first}")
