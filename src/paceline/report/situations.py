"""The situations of a study: what the page's controls choose from, and its answers speak of."""

from collections.abc import Sequence
from dataclasses import dataclass

from paceline.analysis.configuration import groups, matching
from paceline.analysis.tables import Frame, Row, Tables
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
        return matching(table, {k: v for k, v in self.values.items() if k in table})


def situation_columns(tables: Tables) -> list[str]:
    """Return the columns of decision.csv that identify a situation."""
    names = [name for name in tables.axes if name != "scheme" and not name.startswith("scheme.")]
    return list(dict.fromkeys(["kind", "data", *names]))


def situations(findings: StudyFindings) -> list[Situation]:
    """Return all situations; those with the most workers and with tuned rates come first."""
    decision = findings.concluded["decision"]
    columns = situation_columns(findings.tables)
    varying = [name for name in columns if decision[name].nunique(dropna=False) > 1]
    made = [values for values, _ in groups(decision, columns)]
    made.sort(key=lambda values: (values.get(RATE) == "by_rule", -values["workers"]))
    return [
        Situation(f"s{place}", values, _words(values, varying)) for place, values in enumerate(made)
    ]


def of_several_schemes(findings: StudyFindings) -> list[Situation]:
    """Return the situations in which there is something to choose; one worker is none."""
    decision = findings.concluded["decision"]
    several = [each for each in situations(findings) if len(each.of(decision)) > 1]
    return [each for each in several if each.values["workers"] > 1]


def _words(values: Row, varying: Sequence[str]) -> str:
    names = ["workers", *(name for name in varying if name != "workers")]
    return ", ".join(value_words(name, values[name]) for name in names if name != "kind") + (
        f" ({values['kind']})" if "kind" in varying else ""
    )
