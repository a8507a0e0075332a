"""Writes the front page of all studies: what each found, and every scheme in every situation."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.analysis.analyse import table_path
from paceline.analysis.exchanges import NAME, read_exchanges, recommendation
from paceline.analysis.tables import read_table, require
from paceline.errors import SettingError
from paceline.report.chart.chart_style import TIER_COLOURS
from paceline.report.findings import read_findings
from paceline.report.page import render
from paceline.report.published_verdicts import published_verdicts
from paceline.report.readme_answer import STUDIES
from paceline.report.study_cards import StudyCard, exchange_card, study_card
from paceline.report.tier_matrix import TierRow, schemes_of, tier_rows
from paceline.report.tiers import MEANINGS

PAGE = "index.html"


@dataclass(frozen=True)
class _Study:
    """A study with its part of the matrix; `unreached`: situations in which no run got there."""

    card: StudyCard
    rows: Sequence[TierRow]
    unreached: Sequence[str]


def write_front_page(reports: Path) -> Path:
    """Write index.html into `reports` from the tables of its studies; return its path.

    A study that was not analysed, or by older code, is named with what is to be done first. Equal
    tables result in equal bytes.
    """
    shown: list[_Study] = []
    missing: list[str] = []
    for folder in sorted((path.parent for path in reports.glob("*/study.json")), key=_place):
        try:
            shown.append(_study(folder))
        except SettingError as error:
            missing.append(f"{folder.name}: {error.message.replace(f'{reports}/', '')}")
    matrix = [study for study in shown if study.rows or study.unreached]
    content = {
        "cards": [study.card for study in shown],
        "missing": missing,
        "matrix": matrix,
        "schemes": schemes_of([row for study in matrix for row in study.rows]),
        "meanings": MEANINGS,
        "colours": TIER_COLOURS,
        "published": published_verdicts(reports),
    }
    page = reports / PAGE
    page.write_text(render("front.html.j2", content))
    return page


def _place(folder: Path) -> tuple[bool, int, str]:
    """Studies of which README has answers come first, in its order."""
    name = folder.name
    first = STUDIES.index(name) if name in STUDIES else 0
    return name not in STUDIES, first, name


def is_of_exchanges(folder: Path) -> bool:
    """Return whether a study's points are exchanges, and not trainings."""
    return (folder / NAME).is_file()


def _study(folder: Path) -> _Study:
    if not is_of_exchanges(folder):
        findings = read_findings(folder)
        rows = tier_rows(findings)
        unreached = [row.situation for row in rows if not row.is_reached]
        reached = [row for row in rows if row.is_reached]
        return _Study(study_card(folder, findings), reached, unreached)
    exchanges = read_exchanges(folder)
    first = f"paceline report {folder.name}"
    best = read_table(require(table_path(folder, recommendation.__name__), first))
    return _Study(exchange_card(folder, exchanges, best), [], [])
