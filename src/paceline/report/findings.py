"""Reads all tables from which the page of a study is made, and finds the study's situations.

Schemes are compared within a situation, which has the number of workers and all other settings that
do not belong to the scheme.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from paceline.analysis.analyse import CONCLUSIONS
from paceline.analysis.comparison import against_first
from paceline.analysis.configuration import (
    PROCESSES,
    configurations,
    groups,
    matching,
    situation_columns,
    size_of,
    with_processes,
)
from paceline.analysis.configuration_table import NAME, known
from paceline.analysis.frames import Frame, Row, as_csv, as_written
from paceline.analysis.tables import (
    Tables,
    implied_by_kind,
    implied_by_scheme,
    read_tables,
    varying,
)
from paceline.report.words import values_words

RATE = "training.rate"


@dataclass(frozen=True)
class StudyFindings:
    """Tables of a study: the collected ones in `tables`, and `concluded` ones by their name.

    `of_size` are those settings of schemes that depend only on the number of workers.
    """

    tables: Tables
    concluded: "Concluded"
    of_size: Sequence[str]

    def known(self, column: str) -> Frame:
        """Return the rows of configurations.csv that have a value in `column`."""
        return known(self.concluded[NAME], column)

    @cached_property
    def configurations(self) -> Frame:
        """Return configurations.csv, each row also compared with the first, as `against_first`.

        `most_seconds` are those of the longest run.
        """
        tables, names = self.tables, list(dict.fromkeys(["data", *self.tables.axes]))
        lengths = [
            {"most_seconds": points["seconds"].max()}
            for _, points in configurations(tables.runs, names)
        ]
        more = (as_written(against_first(tables)), pd.DataFrame(lengths).reset_index(drop=True))
        return pd.concat([self.concluded[NAME].reset_index(drop=True), *more], axis=1)

    @cached_property
    def compares_all(self) -> bool:
        """True if the study compares all configurations: it predicts nothing, and no situation has
        several schemes, or several settings with a speed-up over one worker.
        """
        rows = [each.of(self.concluded["decision"]) for each in of_several_schemes(self)]
        several = (own["scheme"].nunique() > 1 or own["speedup_mean"].notna().any() for own in rows)
        return not any(several) and not len(self.tables.predictions)

    @cached_property
    def varying(self) -> list[str]:
        """Axes besides scheme, workers and seed that charts and tables of the page name."""
        return [name for name in varying(self.tables) if name not in self.of_size]


def read_findings(folder: Path) -> StudyFindings:
    """Read the tables of the study in `folder`, reports/<study>, and draw its conclusions.

    Rows that name a scheme get its settings that never vary in the study. Settings that depend only
    on the number of workers are left empty, because no reader chooses them. Raises
    SettingError("study"), which names the command to run first, if a table is missing.
    """
    tables = read_tables(folder)
    blank = of_size(tables)
    named = naming_of(tables, blank)
    return StudyFindings(tables, Concluded(tables, named), blank)


class Concluded(dict[str, Frame]):
    """Tables of conclusions by name, each made when it is first asked for.

    They are as their files say them, with what `named(table)` adds.
    """

    def __init__(self, tables: Tables, named: Callable[[Frame], Frame]) -> None:
        super().__init__()
        self._tables, self._named, self._made = tables, named, dict[str, Frame]()
        self._makers = {each.name: each.make for each in CONCLUSIONS}

    def __contains__(self, name: object) -> bool:
        return name in self._makers

    def __missing__(self, name: str) -> Frame:
        self._made[name] = made = as_written(self._makers[name](self._tables))
        self[name] = self._named(made)
        return self[name]

    def csv(self, name: str) -> str:
        """Return the content of tables/`name`.csv."""
        self[name]  # makes it
        return as_csv(self._made[name])


def naming_of(tables: Tables, blank: Sequence[str]) -> Callable[[Frame], Frame]:
    """Return a function that adds the constant settings of schemes to a table of conclusions.

    The function empties the columns of the settings in `blank`.
    """
    implied = implied_by_scheme(tables)

    def named(rows: Frame) -> Frame:
        if "scheme" in rows:
            missing = ["scheme", *(each for each in implied if each not in rows)]
            rows = rows.merge(implied[missing], how="left", on="scheme")
        return rows.assign(**{each: None for each in blank if each in rows})

    return named


def of_size(tables: Tables) -> list[str]:
    """Return the settings of schemes that depend only on the number of workers."""
    runs, names = tables.runs, [name for name in tables.axes if name.startswith("scheme.")]
    of_both, of_one = runs.groupby(["scheme", "workers"]), runs.groupby("scheme")
    return [
        name
        for name in names
        if of_both[name].nunique(dropna=False).max() == 1 < of_one[name].nunique(dropna=False).max()
    ]


@dataclass(frozen=True)
class Situation:
    """Situation of a user: kind of number, number of workers, and settings not of the scheme.

    `values` has its value of each column that distinguishes situations, and `words` describe those
    that differ between the study's situations.
    """

    values: Row
    words: str

    def of(self, table: Frame) -> Frame:
        """Select the rows of a table of conclusions that belong to this situation."""
        table = table if PROCESSES in table else with_processes(table)
        return matching(table, {k: v for k, v in self.values.items() if k in table})

    @property
    def size(self) -> int:
        """Number of workers; of processes, if workers may have several processes."""
        return size_of(self.values)


def situations(findings: StudyFindings) -> list[Situation]:
    """Return all situations, those with tuned learning rates first, then those of few workers."""
    decision = findings.concluded["decision"]
    columns = situation_columns(findings.tables.axes)
    told = [name for name in columns if name not in implied_by_kind(findings.tables)]
    varying = [name for name in told if decision[name].nunique(dropna=False) > 1]
    found = [Situation(values, _words(values, varying)) for values, _ in groups(decision, columns)]
    return sorted(found, key=lambda each: (each.values.get(RATE) == "by_rule", each.size))


def of_several_schemes(findings: StudyFindings) -> list[Situation]:
    """Return the situations with several workers and several schemes to choose from."""
    decision = findings.concluded["decision"]
    every = situations(findings)
    return [each for each in every if each.size > 1 and len(each.of(decision)) > 1]


def _size_column(values: Row) -> str:
    return "workers" if "workers" in values else PROCESSES


def _words(values: Row, varying: Sequence[str]) -> str:
    names = dict.fromkeys([_size_column(values), *varying])
    usual = ("kind", RATE) if values.get(RATE) == "tuned" else ("kind",)
    words = values_words(values, [name for name in names if name not in usual])
    return f"{words} ({values['kind']})" if "kind" in varying else words
