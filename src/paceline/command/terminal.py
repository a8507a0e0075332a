"""Prints tables and texts in the terminal."""

import sys
from collections.abc import Iterable, Mapping, Sequence

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from paceline.errors import printable

_WIDTH = 200  # of tables where there is no terminal


def plain_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Return a table of texts; columns whose heading begins with `>` are aligned to the right."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in columns:
        side = "right" if heading.startswith(">") else "left"
        table.add_column(Text(heading.lstrip(">")), justify=side, overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(text)) for text in row))
    return table


def show(parts: Iterable[RenderableType]) -> None:
    """Print tables and texts, as wide as they need to be."""
    width = None if sys.stdout.isatty() else _WIDTH
    console = Console(highlight=False, soft_wrap=True, width=width)
    for part in parts:
        console.print(printable(part) if isinstance(part, str) else part, markup=False)


def show_rows(rows: Sequence[Mapping[str, str]]) -> None:
    """Print a table of rows, which are texts by heading; print nothing if there are no rows."""
    if rows:
        show([plain_table([*rows[0]], [[*row.values()] for row in rows])])
