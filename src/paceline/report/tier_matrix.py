"""Lays out how far each scheme came in each situation of all studies, a row per situation."""

from collections.abc import Sequence
from dataclasses import dataclass

from paceline.analysis.tables import Frame
from paceline.report.findings import StudyFindings
from paceline.report.situations import of_several_schemes
from paceline.report.tiers import tier_of
from paceline.report.words import SCHEMES, scheme_words


@dataclass(frozen=True)
class TierCell:
    """Tier of a scheme: a word of MEANINGS. `settings` tells its variants apart, or is ""."""

    settings: str
    tier: str


@dataclass(frozen=True)
class TierRow:
    """A situation with the cells of its schemes, by their names."""

    situation: str
    cells: dict[str, list[TierCell]]

    @property
    def is_reached(self) -> bool:
        """True unless all schemes were judged, and none ever reached the target."""
        return {cell.tier for cells in self.cells.values() for cell in cells} != {"never"}


def tier_rows(findings: StudyFindings) -> list[TierRow]:
    """Return a row for each situation of several schemes in which there was a target."""
    decision = findings.concluded["decision"]
    made = [TierRow(each.words, _cells(each.of(decision))) for each in of_several_schemes(findings)]
    return [row for row in made if row.cells]


def schemes_of(rows: Sequence[TierRow]) -> dict[str, str]:
    """Return the schemes in these rows by name, each in words."""
    found = dict.fromkeys(name for row in rows for name in row.cells)
    return {name: SCHEMES.get(name, name) for name in [*SCHEMES, *found] if name in found}


def _cells(rows: Frame) -> dict[str, list[TierCell]]:
    found: dict[str, list[TierCell]] = {}
    for _, row in rows.iterrows():
        if tier := tier_of(row):
            name = str(row["scheme"])
            settings = scheme_words(row).removeprefix(SCHEMES.get(name, name)).removeprefix(", ")
            found.setdefault(name, []).append(TierCell(settings, tier))
    return found
