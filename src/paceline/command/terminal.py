"""Prints tables and texts in the terminal, and checks where files are to be written."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from paceline.errors import SettingError, printable

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
    """Print rows as a table; each maps headings to texts. Print nothing without rows."""
    if rows:
        show([plain_table([*rows[0]], [[*row.values()] for row in rows])])


def require_folder(name: str, path: str | Path | None) -> None:
    """Raise SettingError for the option `name` if no file can be written to this path."""
    if path and not Path(path).parent.is_dir():
        raise SettingError(name, f"there is no folder {Path(path).parent}")
    if path and Path(path).is_dir():
        raise SettingError(name, f"{path} is a folder; a file is needed")
