"""Reads all tables from which the page of a study is made, and finds the situations in them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from paceline.analysis.analyse import CONCLUSIONS, table_path
from paceline.analysis.configuration import (
    PROCESSES,
    groups,
    matching,
    situation_columns,
    size_of,
    with_processes,
)
from paceline.analysis.configuration_table import NAME, known
from paceline.analysis.frames import Frame, Row, read_table, require
from paceline.analysis.tables import Tables, implied_by_scheme, read_tables, varying
from paceline.report.words import value_words

RATE = "training.rate"


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
    def varying(self) -> list[str]:
        """Return the axes besides scheme, workers and seed that panels and columns name."""
        return [name for name in varying(self.tables) if name not in self.of_size]


def read_findings(folder: Path) -> StudyFindings:
    """Read the tables in `folder`, reports/<study>.

    Rows that name a scheme also have those of its settings that it always has in the study, but not
    those that differ only with the number of workers: no reader chooses by them.
    Raises SettingError("study") if a table is missing; its message names the command to run first.
    """
    tables = read_tables(folder)
    blank = of_size(tables)
    named = naming_of(tables, blank)
    concluded = {each.name: named(read_conclusion(folder, each.name)) for each in CONCLUSIONS}
    return StudyFindings(tables, concluded, blank)


def naming_of(tables: Tables, blank: Sequence[str]) -> Callable[[Frame], Frame]:
    """Return what adds the settings of schemes to a table of conclusions of this study.

    `blank`: settings that it leaves without a value.
    """
    implied = implied_by_scheme(tables)

    def named(rows: Frame) -> Frame:
        if "scheme" in rows:
            missing = ["scheme", *(each for each in implied if each not in rows)]
            rows = rows.merge(implied[missing], how="left", on="scheme")
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
    of_both, of_one = runs.groupby(["scheme", "workers"]), runs.groupby("scheme")
    return [
        name
        for name in names
        if of_both[name].nunique(dropna=False).max() == 1 < of_one[name].nunique(dropna=False).max()
    ]


@dataclass(frozen=True)
class Situation:
    """Situation of a user: kind of number, scale, and settings that are not the scheme's.

    `name`: its id on the page. `values`: of the columns that identify it. `words`: those that vary.
    """

    name: str
    values: Row
    words: str

    def of(self, table: Frame) -> Frame:
        """Select the rows of a table of conclusions that belong to the situation."""
        table = table if PROCESSES in table else with_processes(table)
        return matching(table, {k: v for k, v in self.values.items() if k in table})

    @property
    def title(self) -> str:
        """Return the words as they begin a line."""
        return self.words[:1].upper() + self.words[1:]

    @property
    def size(self) -> int:
        """Return the number of workers, or of processes where workers may be split."""
        return size_of(self.values)

    @property
    def size_words(self) -> str:
        """Return the size in words, as in "16 workers"."""
        return value_words(_size_column(self.values), self.size)


def situations(findings: StudyFindings) -> list[Situation]:
    """Return all situations, first those of several schemes.

    Then of tuned rates, then those in which the target is reached, then of the most workers.
    """
    decision = findings.concluded["decision"]
    columns = situation_columns(findings.tables.axes)
    varying = [name for name in columns if decision[name].nunique(dropna=False) > 1]
    found = [
        (Situation("", values, _words(values, varying)), len(rows) < 2, not rows["n_reached"].any())
        for values, rows in groups(decision, columns)
    ]
    found.sort(key=lambda it: (it[1], it[0].values.get(RATE) == "by_rule", it[2], -it[0].size))
    return [replace(each, name=f"s{place}") for place, (each, *_) in enumerate(found)]


def of_several_schemes(findings: StudyFindings) -> list[Situation]:
    """Return the situations in which there is something to choose; one worker is none."""
    decision = findings.concluded["decision"]
    every = situations(findings)
    return [each for each in every if each.size > 1 and len(each.of(decision)) > 1]


def _size_column(values: Row) -> str:
    return "workers" if "workers" in values else PROCESSES


def _words(values: Row, varying: Sequence[str]) -> str:
    names = dict.fromkeys([_size_column(values), *varying])
    words = ", ".join(value_words(name, values[name]) for name in names if name != "kind")
    return f"{words} ({values['kind']})" if "kind" in varying else words
