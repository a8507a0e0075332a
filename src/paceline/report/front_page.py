"""Writes the front page of all studies: what each found, and every scheme in every situation."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from paceline.analysis.exchanges import NAME, read_exchanges, recommendation
from paceline.analysis.frames import Frame, read_table
from paceline.errors import SettingError
from paceline.report.chart.chart_style import TIER_COLOURS
from paceline.report.choice import MEANINGS, tier_of
from paceline.report.findings import StudyFindings, read_conclusion, read_findings
from paceline.report.number_format import count, percent
from paceline.report.page import render
from paceline.report.phrases import say
from paceline.report.readme_answer import STUDIES
from paceline.report.situations import of_several_schemes
from paceline.report.study_cards import StudyCard, exchange_card, study_card
from paceline.report.table import Column, Table, table
from paceline.report.words import scheme_name, scheme_words

PAGE = "index.html"
_PUBLISHED = "predictions/predictions.csv"  # of `paceline predict --published`
_VERDICTS = (
    Column("verdict", lambda row: row["verdict"]),
    Column("numbers", lambda row: count(row["numbers"])),
    Column("median error", lambda row: percent(row["median"])),
    Column("within 10 %", lambda row: count(row["within_10"])),
    Column("within 25 %", lambda row: count(row["within_25"])),
)


class TierCell(NamedTuple):
    """Tier of a scheme: a word of MEANINGS. `settings` are those of its variant, or ""."""

    settings: str
    tier: str


class TierRow(NamedTuple):
    """A situation with the cells of its schemes, by their names."""

    situation: str
    cells: Mapping[str, Sequence[TierCell]]

    @property
    def is_reached(self) -> bool:
        """False if all schemes were judged, and none ever reached the target."""
        return {cell.tier for cells in self.cells.values() for cell in cells} != {"never"}


class _Study(NamedTuple):
    """A study with its rows of the matrix; `unreached`: situations in which no run got there."""

    card: StudyCard
    rows: Sequence[TierRow]
    unreached: Sequence[str]


def write_front_page(reports: Path) -> Path:
    """Write index.html into `reports` from the tables of its studies; return its path.

    A study that was not analysed, or by an older version of the code, is named with what is to be
    done first. Equal tables result in equal bytes.
    """
    shown: list[_Study] = []
    missing: list[str] = []
    for folder in sorted((path.parent for path in reports.glob("*/study.json")), key=_place):
        try:
            shown.append(_study(folder))
        except SettingError as error:
            missing.append(f"{folder.name}: {error.message.replace(f'{reports}/', '')}")
    matrix = [study for study in shown if study.rows or study.unreached]
    names = dict.fromkeys(n for study in matrix for row in study.rows for n in row.cells)
    content = {
        "cards": [study.card for study in shown],
        "missing": missing,
        "matrix": matrix,
        "schemes": {name: scheme_name(name) for name in names},
        "meanings": MEANINGS,
        "colours": TIER_COLOURS,
        "published": _published(reports),
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
        rows = _tier_rows(findings)
        unreached = [row.situation for row in rows if not row.is_reached]
        reached = [row for row in rows if row.is_reached]
        return _Study(study_card(folder, findings), reached, unreached)
    exchanges = read_exchanges(folder)
    best = read_conclusion(folder, recommendation.__name__)
    return _Study(exchange_card(folder, exchanges, best), [], [])


def _tier_rows(findings: StudyFindings) -> list[TierRow]:
    """Return a row for each situation of several schemes in which there was a target."""
    decision = findings.concluded["decision"]
    made = [TierRow(each.words, _cells(each.of(decision))) for each in of_several_schemes(findings)]
    return [row for row in made if row.cells]


def _cells(rows: Frame) -> dict[str, list[TierCell]]:
    found: dict[str, list[TierCell]] = {}
    for _, row in rows.iterrows():
        if tier := tier_of(row):
            name = str(row["scheme"])
            settings = scheme_words(row).removeprefix(scheme_name(name)).removeprefix(", ")
            found.setdefault(name, []).append(TierCell(settings, tier))
    return found


def _published(reports: Path) -> Table | None:
    """Count by verdict how published numbers were predicted; None without predictions."""
    path = reports / _PUBLISHED
    if not path.is_file():
        return None
    rows = read_table(path)
    errors = rows["error"].abs().groupby(rows["verdict"], sort=False)
    counts = errors.agg(
        numbers="size",
        median="median",
        within_10=lambda error: (error <= 0.1).sum(),
        within_25=lambda error: (error <= 0.25).sum(),
    ).reset_index()
    caption = say("caption_published")
    return table("Published numbers, predicted", caption, _PUBLISHED, _VERDICTS, counts)
