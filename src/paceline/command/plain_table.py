"""Table in the terminal, as wide as it needs to be."""

import sys
from collections.abc import Iterable, Mapping, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

WIDTH = 200  # of tables where there is no terminal


def plain_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Return a table of texts; a column whose heading begins with `>` is set to the right."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in columns:
        side = "right" if heading.startswith(">") else "left"
        table.add_column(Text(heading.lstrip(">")), justify=side, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def print_table(rows: Sequence[Mapping[str, str]]) -> None:
    """Print rows of texts by the headings of their columns; nothing without a row."""
    if not rows:
        return
    width = None if sys.stdout.isatty() else WIDTH
    console = Console(highlight=False, soft_wrap=True, width=width)
    console.print(plain_table([*rows[0]], [[*row.values()] for row in rows]))
