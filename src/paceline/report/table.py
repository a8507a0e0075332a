"""Makes tables from declared columns; their cells are text, the same for HTML and Markdown."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from paceline.analysis.frames import Frame, Row
from paceline.report.number_format import (
    FORMS,
    MISSING,
    Form,
    interval,
    setting,
    shown,
    with_interval,
)
from paceline.report.words import phrase, read


@dataclass(frozen=True)
class Table:
    """Table of a page under the heading `name`.

    `source` is the path of the CSV that it shows. Each row has a text per column. `says` are
    sentences above the table.
    """

    name: str
    caption: str
    source: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    says: Sequence[str] = ()


@dataclass(frozen=True)
class Column:
    """Column of a table: its heading, with the unit, and the text of a row's cell."""

    heading: str
    text: Callable[[Frame], str]


def columns(name: str, facts: Row | None = None) -> list[Column]:
    """Return the columns that templates/tables.yaml declares; phrases also know the facts."""
    return [_column(facts or {}, **each) for each in read("tables")[name]["columns"]]


def _column(facts: Row, heading: str, form: str = "setting", **shown: str) -> Column:
    ((kind, what),) = shown.items()
    if kind == "text":
        return Column(heading, lambda row: phrase(what).render(facts | dict(row), row=row))
    if kind == "interval":
        return Column(heading, lambda row: interval(row, what, FORMS[form]) or MISSING)
    return {"value": of_value, "mean": of_mean}[kind](heading, what, FORMS[form])


def of_value(heading: str, name: str, form: Form = setting) -> Column:
    """Show the number or word in the column `name`; a dash if it is missing."""
    return Column(heading, lambda row: shown(row.get(name), form))


def of_mean(heading: str, name: str, form: Form) -> Column:
    """Show the mean, interval and n in `<name>_mean` to `<name>_n`; a dash without a mean."""
    return Column(heading, lambda row: with_interval(row, name, form))


def axes(names: Iterable[str]) -> list[Column]:
    """Show these settings; "null" where one has no value."""
    return [Column(name, lambda row, name=name: setting(row[name])) for name in names]


def table(
    name: str,
    caption: str,
    source: str,
    columns: Sequence[Column],
    frame: Frame,
    says: Sequence[str] = (),
) -> Table:
    """Show each row of `frame` in these columns, and last its kind where it has one."""
    columns = [*columns, *axes(["kind"] if "kind" in frame else [])]
    rows = [[column.text(row) for column in columns] for _, row in frame.iterrows()]
    return Table(name, caption, source, [column.heading for column in columns], rows, says)
