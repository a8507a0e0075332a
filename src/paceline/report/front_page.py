"""Writes the front page of all studies: a card per study, and the schemes in all situations.

A card has the answers of a study. The matrix shows each scheme in each situation by its tier, which
says how its time to the target compares with that of the best scheme.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from paceline.analysis.analyse import read_conclusion
from paceline.analysis.exchanges import NAME, read_exchanges, recommendation
from paceline.analysis.frames import Frame, Row, read_tied
from paceline.errors import SettingError, tell
from paceline.record.tied_files import ChangedFileError, replaced, sums_of_predictions
from paceline.report.answer import Answer, answers, choice
from paceline.report.chart.chart_style import TIER_COLOURS
from paceline.report.exchange_page import recommended
from paceline.report.findings import of_several_schemes, read_findings
from paceline.report.how_it_was_run import cost
from paceline.report.number_format import plural
from paceline.report.page import render
from paceline.report.page_tables import Table, columns, table
from paceline.report.summary import summary_sentences
from paceline.report.tiers import MEANINGS, tier_of
from paceline.report.words import say, scheme_name, scheme_words

PAGE = "index.html"
PAPERS = "papers"  # folder of their ledger
_FIRST = ("scale", "when_asynchronous", "schemes", "example")  # in front
_PUBLISHED = "predictions/predictions.csv"  # of `paceline predict --published`
_FIGURE = re.compile(r"^!\[(.*)\]\((figures/.+\.svg)\)$", re.MULTILINE)
_DETAIL = re.compile(r" \([^()]{40,}\)")  # which the page gives, and the card does not
_MOST, _MOST_CONFIGURATIONS = 2, 8  # with a sentence on a card, if it says nothing else


def write_front_page(reports: Path) -> Path:
    """Write index.html into `reports` from the tables of its studies; return its path.

    Studies that were not analysed are listed on the page, each with the command to run. Those whose
    files were changed by hand are also named on standard error. Equal tables result in files of
    equal bytes.
    """
    cards: list[Row] = []
    missing: list[str] = []
    for folder in sorted((path.parent for path in reports.glob("*/study.json")), key=_place):
        try:
            cards.append(_exchange_card(folder) if is_of_exchanges(folder) else _card(folder))
        except SettingError as error:
            missing.append(f"{folder.name}: {error.message.replace(f'{reports}/', '')}")
            if isinstance(error, ChangedFileError):
                tell(missing[-1])
    try:
        published = _published(reports)
    except SettingError as error:
        published = missing.append(error.message)
    matrix = [card for card in cards if card["rows"] or card["unreached"]]
    names = dict.fromkeys(
        name for card in matrix for cells in card["rows"].values() for name in cells
    )
    content = {
        "cards": cards,
        "missing": missing,
        "matrix": matrix,
        "schemes": {name: scheme_name(name) for name in names},
        "meanings": MEANINGS,
        "colours": TIER_COLOURS,
        "published": published,
        "papers": (reports / PAPERS / PAGE).is_file(),
    }
    with replaced(reports) as new:
        (new / PAGE).write_text(render("front.html.j2", content))
    return reports / PAGE


def is_of_exchanges(folder: Path) -> bool:
    """Return True if the study measures exchanges (collective operations) without training."""
    return (folder / NAME).is_file()


def dates(rows: Frame) -> str:
    """Return the first and the last day on which points started, or "" if unknown."""
    days = sorted(str(text)[:10] for text in rows["started"] if text) if "started" in rows else []
    return " to ".join(dict.fromkeys([days[0], days[-1]])) if days else ""


def _place(folder: Path) -> tuple[int, str]:
    name = folder.name
    return _FIRST.index(name) if name in _FIRST else len(_FIRST), name


def _card(folder: Path) -> Row:
    """Return the contents of the card of a study of training, and its rows of the matrix.

    `rows` has the tiers of each situation by scheme. `unreached` names the situations in which all
    schemes were judged and no run reached the target; these have no row.
    """
    findings = read_findings(folder)
    runs, about = findings.tables.runs, findings.tables.about
    num_finished = len(findings.tables.finished)
    says = summary_sentences(findings, "validation")
    ends = dict.fromkeys([*says[:1], *says[-1:]])  # on clocks or predictions; on all together
    decision, several = findings.concluded["decision"], of_several_schemes(findings)
    cells = {each.words: _cells(each.of(decision)) for each in several}
    unreached = [
        words
        for words, of in cells.items()
        if {tier for tiers in of.values() for _, tier in tiers} == {"never"}
    ]
    return _made(folder, about["question"], answers(findings), runs) | {
        "shown": 0 if says else _MOST_CONFIGURATIONS if findings.compares_all else _MOST,
        "says": [_DETAIL.sub("", text) for text in ends],
        "done": f"{num_finished} of {plural(about['num_points'], 'point')} finished",
        "cost": cost(runs),
        "rows": {words: of for words, of in cells.items() if of and words not in unreached},
        "unreached": unreached,
    }


def _exchange_card(folder: Path) -> Row:
    exchanges = read_exchanges(folder)
    rows, best = exchanges.rows, read_conclusion(folder, recommendation.__name__)
    number = rows["key"].nunique()
    unfinished = rows.loc[rows["status"] != "finished", "key"].nunique()
    return _made(folder, exchanges.question, recommended(exchanges, best), rows) | {
        "says": [],
        "shown": _MOST,
        "done": f"{number - unfinished} of {plural(number, 'exchange')} finished",
        "cost": "",
        "rows": {},
        "unreached": [],
    }


def _made(folder: Path, question: str | None, found: Sequence[Answer], rows: Frame) -> Row:
    page = folder / "README.md"
    figure = _FIGURE.search(page.read_text(errors="replace")) if page.is_file() else None
    if figure and not (folder / figure[2]).is_file():
        figure = None
    return {
        "study": folder.name,
        "question": question or f"{folder.name} states no question.",
        "answers": found,
        "figure": f"{folder.name}/{figure[2]}" if figure else "",
        "title": figure[1] if figure else "",
        "kinds": list(dict.fromkeys(rows["kind"])),
        "dates": dates(rows),
    }


def _cells(rows: Frame) -> dict[str, list[tuple[str, str]]]:
    """Return for each scheme the words and the tier of each of its variants.

    The words are its settings, whether it is recommended, and how many runs reached the target if
    only some did.
    """
    found, chosen = dict[str, list[tuple[str, str]]](), choice(rows)
    for place, row in rows.iterrows():
        if tier := tier_of(row):
            name, runs = str(row["scheme"]), row["n"] - row["n_failed"]
            words = [scheme_words(row).removeprefix(scheme_name(name)).removeprefix(", ")]
            if chosen.is_scheme and chosen.row is not None and place == chosen.row.name:
                words.append("recommended")
            if 0 < row["n_reached"] < runs:
                words.append(f"{row['n_reached']} of {plural(runs, 'run')}")
            found.setdefault(name, []).append(("; ".join(filter(None, words)), tier))
    return found


def _published(reports: Path) -> Table | None:
    """Return a table of how well published numbers were predicted, with a row per verdict.

    None if there are no predictions of published numbers.
    """
    path = reports / _PUBLISHED
    if not path.is_file():
        return None
    rows = read_tied(path, "paceline predict --published", sums=sums_of_predictions(path))
    errors = rows["error"].abs().groupby(rows["verdict"], sort=False)
    counts = errors.agg(
        numbers="size",
        median="median",
        within_10=lambda error: (error <= 0.1).sum(),
        within_25=lambda error: (error <= 0.25).sum(),
    ).reset_index()
    caption, own = say("caption_published"), columns("published")
    return table("Published numbers, predicted", caption, _PUBLISHED, own, counts)
