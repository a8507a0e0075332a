"""Makes tables whose cells are text, the same for HTML, Markdown and the terminal."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from paceline.analysis.analyse import FOLDER
from paceline.analysis.frames import Frame
from paceline.report.findings import StudyFindings
from paceline.report.number_format import Form, setting, shown, with_interval


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
    """Column of a table: its title, with the unit, and the text of a row's cell."""

    title: str
    text: Callable[[Frame], str]


def value(title: str, name: str, form: Form = setting) -> Column:
    """Show the number or word in the column `name`; a dash if it is missing."""
    return Column(title, lambda row: shown(row.get(name), form))


def mean(title: str, name: str, form: Form) -> Column:
    """Show the mean, interval and n in `<name>_mean` to `<name>_n`; a dash without a mean."""
    return Column(
        title, lambda row: shown(row.get(f"{name}_mean"), lambda _: with_interval(row, name, form))
    )


def axis(name: str) -> Column:
    """Show the setting `name`; "null" if it has no value."""
    return Column(name, lambda row: setting(row[name]))


def table(
    name: str,
    caption: str,
    source: str,
    columns: Sequence[Column],
    frame: Frame,
    says: Sequence[str] = (),
) -> Table:
    """Show each row of `frame` in these columns, and last its kind where it has one."""
    columns = [*columns, *([axis("kind")] if "kind" in frame else [])]
    rows = [[column.text(row) for column in columns] for _, row in frame.iterrows()]
    return Table(name, caption, source, [column.title for column in columns], rows, says)


def axes_of(findings: StudyFindings, frame: Frame) -> list[Column]:
    """Return the columns that say of which configuration a row is."""
    return [axis(n) for n in ("scheme", "workers", *findings.varying) if n in frame]


def concluded(
    findings: StudyFindings,
    conclusion: str,
    name: str,
    caption: str,
    columns: Sequence[Column],
    says: Sequence[str] = (),
    rows: Frame | None = None,
) -> Table:
    """Show rows of the table `conclusion` of analysis, or all, under the heading `name`."""
    frame = findings.concluded[conclusion] if rows is None else rows
    columns = [*axes_of(findings, frame), *columns]
    return table(name, caption, f"{FOLDER}/{conclusion}.csv", columns, frame, says)
