"""Makes tables whose cells are text, the same for HTML and Markdown."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from paceline.analysis.analyse import FOLDER
from paceline.analysis.configuration_table import NAME, VIEWS
from paceline.analysis.tables import Frame
from paceline.report.findings import StudyFindings
from paceline.report.number_format import Form, setting, shown, with_interval

Cell = Callable[[Frame], str]  # text of a row's cell


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


def concluded_table(
    findings: StudyFindings,
    conclusion: str,
    name: str,
    caption: str,
    cells: Mapping[str, Cell],
    says: Sequence[str] = (),
) -> Table:
    """Show the table `conclusion` of analysis under the heading `name`."""
    source = f"{FOLDER}/{NAME if conclusion in VIEWS else conclusion}.csv"
    frame = findings.concluded[conclusion]
    return table_of(findings, name, caption, source, frame, cells, says)


def table_of(
    findings: StudyFindings,
    name: str,
    caption: str,
    source: str,
    frame: Frame,
    cells: Mapping[str, Cell],
    says: Sequence[str] = (),
) -> Table:
    """Show each row of `frame`: its axes, the text of each of `cells`, and its kind."""
    axes = [axis for axis in ("scheme", "workers", *findings.varying) if axis in frame]
    kind = ["kind"] if "kind" in frame else []
    rows = [
        [*(setting(row[axis]) for axis in axes), *(c(row) for c in cells.values()), *row[kind]]
        for _, row in frame.iterrows()
    ]
    return Table(name, caption, source, [*axes, *cells, *kind], rows, says)


def spread(name: str, form: Form) -> Cell:
    """Make a cell with the mean, interval and n in `<name>_mean` to `<name>_n`.

    It is a dash without a mean.
    """
    return lambda row: shown(row.get(f"{name}_mean"), lambda _: with_interval(row, name, form))


def cell(name: str, form: Form) -> Cell:
    """Make a cell with the number in the column `name`; it is a dash if that is missing."""
    return lambda row: shown(row.get(name), form)
