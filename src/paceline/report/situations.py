"""The situations of a study: what the page's controls choose from, and its answers speak of."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from paceline.analysis.configuration import (
    PROCESSES,
    groups,
    matching,
    situation_columns,
    size_of,
    with_processes,
)
from paceline.analysis.frames import Frame, Row
from paceline.report.findings import StudyFindings
from paceline.report.words import value_words

RATE = "training.rate"


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
    def size_words(self) -> str:
        """Return the size in words, as in "16 workers"."""
        return value_words("workers" if "workers" in self.values else PROCESSES, self.size)

    @property
    def size(self) -> int:
        """Return the number of workers, or of processes where workers may be split."""
        return size_of(self.values)


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
    several = [each for each in situations(findings) if len(each.of(decision)) > 1]
    return [each for each in several if each.size > 1]


def _words(values: Row, varying: Sequence[str]) -> str:
    size = "workers" if "workers" in values else PROCESSES
    names = [size, *(name for name in varying if name != size)]
    return ", ".join(value_words(name, values[name]) for name in names if name != "kind") + (
        f" ({values['kind']})" if "kind" in varying else ""
    )
