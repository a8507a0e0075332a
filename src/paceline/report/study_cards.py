"""Says of each study on the front page what it asks, what it found, and what that cost."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.analysis.exchanges import Exchanges
from paceline.analysis.frames import Frame
from paceline.report.answer import Answer, answers
from paceline.report.exchange_page import recommended
from paceline.report.findings import StudyFindings
from paceline.report.how_it_was_run import cost
from paceline.report.number_format import plural
from paceline.report.summary import summary_sentences

_FIGURE = re.compile(r"^!\[(.*)\]\((figures/.+\.svg)\)$", re.MULTILINE)
_DETAIL = re.compile(r" \([^()]{40,}\)")  # which the page gives, and the card does not
_MOST = 2  # situations with a sentence on a card


@dataclass(frozen=True)
class StudyCard:
    """Card of a study on the front page.

    `figure`: path of its first figure, "" without one, and `title` says what it shows. `rest`
    counts the situations that its page speaks of, and the card does not.
    """

    study: str
    question: str
    says: Sequence[str]
    answers: Sequence[Answer]
    rest: int
    figure: str
    title: str
    kinds: Sequence[str]
    dates: str
    done: str
    cost: str


def study_card(folder: Path, findings: StudyFindings) -> StudyCard:
    """Return the card of a study of training."""
    runs, about = findings.tables.runs, findings.tables.about
    says = summary_sentences(findings)
    ends = dict.fromkeys([*says[:1], *says[-1:]])  # on clocks or predictions; on all together
    says = [_DETAIL.sub("", text) for text in ends]
    finished = f"{len(findings.tables.finished)} of {plural(about['num_points'], 'point')} finished"
    return _card(folder, about["question"], says, answers(findings), runs, finished, cost(runs))


def exchange_card(folder: Path, exchanges: Exchanges, best: Frame) -> StudyCard:
    """Return the card of a study of exchanges; `best` are its recommendations."""
    rows = exchanges.rows
    unfinished = set(rows.loc[rows["status"] != "finished", "key"])
    number = rows["key"].nunique()
    done = f"{number - len(unfinished)} of {plural(number, 'exchange')} finished"
    return _card(folder, exchanges.question, [], recommended(exchanges, best), rows, done, "")


def _card(
    folder: Path,
    question: str | None,
    says: Sequence[str],
    found: Sequence[Answer],
    rows: Frame,
    done: str,
    cost: str,
) -> StudyCard:
    shown = [] if says else found[:_MOST]
    title, figure = first_figure(folder)
    return StudyCard(
        study=folder.name,
        question=question or f"{folder.name} states no question.",
        says=says,
        answers=shown,
        rest=len(found) - len(shown),
        figure=f"{folder.name}/{figure}" if figure else "",
        title=title,
        kinds=list(dict.fromkeys(rows["kind"])),
        dates=dates(rows),
        done=done,
        cost=cost,
    )


def first_figure(folder: Path) -> tuple[str, str]:
    """Return title and path of the figure that the page of a study shows first, or two ""."""
    page = folder / "README.md"
    found = _FIGURE.search(page.read_text()) if page.is_file() else None
    return (found[1], found[2]) if found and (folder / found[2]).is_file() else ("", "")


def dates(rows: Frame) -> str:
    """Return the first and the last day on which points started, or "" if no table has them."""
    started = [text for text in rows["started"] if text] if "started" in rows else []
    days = sorted({str(text)[:10] for text in started})
    return " to ".join(dict.fromkeys([days[0], days[-1]])) if days else ""
