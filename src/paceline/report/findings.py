"""Reads all that a page says about a study, once, from its tables."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from paceline.analysis.analyse import CONCLUSIONS, table_path
from paceline.analysis.axes import implied_by_kind, varying
from paceline.analysis.tables import Frame, Tables, read_table, read_tables, require


@dataclass(frozen=True)
class StudyFindings:
    """`tables`: what was collected. `concluded`: what `paceline analyse` made of it, by name.

    `tuning`: tuning.csv, without rows where no rate was tuned, or before there was tuning.
    """

    tables: Tables
    concluded: Mapping[str, Frame]
    tuning: Frame

    @cached_property
    def points(self) -> Frame:
        """`runs`, with what was concluded of each point beside it."""
        return self.tables.runs.merge(self.concluded["points"], how="left", on="key")

    @cached_property
    def varying(self) -> list[str]:
        """Axes besides scheme, workers and seed by which panels and columns differ."""
        return varying(self.tables)

    @property
    def implied_by_kind(self) -> list[str]:
        """Axes that the kind of a number implies."""
        return implied_by_kind(self.tables)

    @property
    def schemes(self) -> list[str]:
        """Schemes in the study's order."""
        return list(dict.fromkeys(self.tables.runs["scheme"]))


def read_findings(folder: Path) -> StudyFindings:
    """Read a study's report. Raises SettingError("study") that names what to run first."""
    tables = read_tables(folder)
    first = f"paceline analyse {folder.name}"
    names = [conclusion.name for conclusion in CONCLUSIONS]
    concluded = {name: read_table(require(table_path(folder, name), first)) for name in names}
    tuning = folder / "tuning.csv"
    tuned = read_table(tuning) if tuning.is_file() else pd.DataFrame()
    return StudyFindings(tables, concluded, tuned)
