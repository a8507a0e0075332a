"""Writes rows as aligned columns of text, and numbers in the units of a plan."""

from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]]) -> str:
    width = max(map(len, rows))
    full = [[*row, *([""] * (width - len(row)))] for row in rows]
    widths = [max(len(row[column]) for row in full) for column in range(width)]
    lines = ["  ".join(f"{c:{w}}" for c, w in zip(row, widths, strict=True)) for row in full]
    return "\n".join(line.rstrip() for line in lines)


def milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:,.2f} ms"


def megabytes(number: float) -> str:
    return f"{number / 1e6:,.{2 if number < 1e8 else 0}f}"
