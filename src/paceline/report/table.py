"""A table of a page: text cells made once, for HTML and Markdown alike."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.analysis.tables import Frame
from paceline.report.findings import Findings
from paceline.report.number_format import setting, shown, with_interval


@dataclass(frozen=True)
class Table:
    """`source`: the CSV that it shows. `rows`: text, a cell per column. `says`: sentences."""

    name: str
    caption: str
    source: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    says: Sequence[str] = ()


def table_of(
    findings: Findings,
    name: str,
    caption: str,
    source: str,
    frame: Frame,
    cells: Mapping[str, Callable[[Any], str]],
    says: Sequence[str] = (),
) -> Table:
    """A row per row of `frame`: its axes, a text for each of `cells`, and its kind."""
    axes = ["scheme", "workers", *findings.varying]
    rows = [
        [*(setting(row[axis]) for axis in axes), *(c(row) for c in cells.values()), row["kind"]]
        for _, row in frame.iterrows()
    ]
    return Table(name, caption, source, [*axes, *cells, "kind"], rows, says)


def spread(name: str, form: Callable[[float], str]) -> Callable[[Any], str]:
    """A cell: mean, interval and n of `<name>_mean` to `_n`; a dash without such columns."""
    return lambda row: shown(row.get(f"{name}_mean"), lambda _: with_interval(row, name, form))


def cell(name: str, form: Callable[[float], str]) -> Callable[[Any], str]:
    return lambda row: shown(row.get(name), form)
