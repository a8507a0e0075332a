"""Table in the terminal, as wide as it needs to be."""

from collections.abc import Iterable, Sequence

from rich import box
from rich.table import Table


def plain_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Return a table of texts; a column whose heading begins with `>` is set to the right."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in columns:
        side = "right" if heading.startswith(">") else "left"
        table.add_column(heading.lstrip(">"), justify=side, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table
