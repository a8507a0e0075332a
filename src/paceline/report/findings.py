"""Reads all tables from which the page of a study is made."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from paceline.analysis.analyse import CONCLUSIONS, table_path
from paceline.analysis.axes import implied_by_kind, implied_by_scheme, varying
from paceline.analysis.configuration_table import NAME, known
from paceline.analysis.frames import Frame, read_table, require
from paceline.analysis.tables import Tables, read_tables


@dataclass(frozen=True)
class StudyFindings:
    """Tables of a study: the collected ones, and the conclusions by name.

    `of_size`: settings of schemes that differ with the number of workers, and only so.
    """

    tables: Tables
    concluded: Mapping[str, Frame]
    of_size: Sequence[str]

    def known(self, column: str) -> Frame:
        """Return the configurations of which `column` of configurations.csv is known."""
        return known(self.concluded[NAME], column)

    @cached_property
    def points(self) -> Frame:
        """Return the rows of `runs`, extended by the conclusions on each point."""
        return self.tables.runs.merge(self.concluded["points"], how="left", on="key")

    @cached_property
    def varying(self) -> list[str]:
        """Return the axes besides scheme, workers and seed that panels and columns name."""
        return [name for name in varying(self.tables) if name not in self.of_size]

    @property
    def implied_by_kind(self) -> list[str]:
        """Return the axes that the kind of a number implies."""
        return implied_by_kind(self.tables)

    @property
    def schemes(self) -> list[str]:
        """Return the schemes in the order of the study."""
        return list(dict.fromkeys(self.tables.runs["scheme"]))


def read_findings(folder: Path) -> StudyFindings:
    """Read the tables in `folder`, reports/<study>.

    Rows that name a scheme also have those of its settings that it always has in the study, but not
    those that differ only with the number of workers: no reader chooses by them.
    Raises SettingError("study") if a table is missing; its message names the command to run first.
    """
    tables = read_tables(folder)
    named = naming_of(tables)
    concluded = {each.name: named(read_conclusion(folder, each.name)) for each in CONCLUSIONS}
    return StudyFindings(tables, concluded, of_size(tables))


def naming_of(tables: Tables) -> Callable[[Frame], Frame]:
    """Return what adds the settings of schemes to a table of conclusions of this study."""
    implied, blank = implied_by_scheme(tables), of_size(tables)

    def named(rows: Frame) -> Frame:
        rows = _with(implied, rows)
        return rows.assign(**{each: None for each in blank if each in rows})

    return named


def read_conclusion(folder: Path, name: str) -> Frame:
    """Read one table of conclusions in `folder`, as it was written.

    Raises SettingError("study") if it is missing; its message names the command to run first.
    """
    return read_table(require(table_path(folder, name), f"paceline report {folder.name}"))


def of_size(tables: Tables) -> list[str]:
    """Return the settings of schemes that differ with the number of workers, and only so."""
    runs, names = tables.runs, [name for name in tables.axes if name.startswith("scheme.")]
    of_both, alone = runs.groupby(["scheme", "workers"]), runs.groupby("scheme")
    return [
        name
        for name in names
        if of_both[name].nunique(dropna=False).max() == 1 < alone[name].nunique(dropna=False).max()
    ]


def _with(implied: Frame, rows: Frame) -> Frame:
    if "scheme" not in rows:
        return rows
    missing = ["scheme", *(name for name in implied if name not in rows)]
    return rows.merge(implied[missing], how="left", on="scheme")
