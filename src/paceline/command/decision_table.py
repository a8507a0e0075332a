"""Decisions of a study, `tables/decision.csv`, as a table in the terminal."""

import csv
from collections.abc import Mapping
from pathlib import Path

from rich.table import Table

from paceline.command.plain_table import plain_table
from paceline.report.answer import MEANINGS, tier_of

_TIERS = [*MEANINGS, ""]


def decision_table(path: Path) -> Table | None:
    """Return a table with a row for each scheme, best first in each situation; None without one."""
    if not path.is_file():
        return None
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        rows = list(reader)
        columns = list(reader.fieldnames or ())
    if not rows:
        return None
    names = [name for name in columns[: columns.index("n")] if _varies(rows, name)]
    of_situation = columns[: columns.index("scheme")]  # what is chosen comes after them
    situation = [name for name in names if name in of_situation]
    rows.sort(key=lambda row: _TIERS.index(tier_of(row)))
    groups: dict[tuple[str, ...], list[Mapping[str, str]]] = {}
    for row in sorted(rows, key=lambda row: [_order(row[name]) for name in situation]):
        groups.setdefault(tuple(row[name] for name in situation), []).append(row)
    scheme = [name for name in names if name not in situation] or ["scheme"]
    side = "one_worker_" if any(row.get("one_worker_top1_difference_mean") for row in rows) else ""
    points = f">points to {'one worker' if side else 'the reference'}"
    headings = [*situation, *scheme, "tier", ">reached", ">speed-up", points, "accuracy"]
    blank = [""] * len(situation)
    lines = [
        [*(key if n == 0 else blank), *(row[name] for name in scheme), *_cells(row, side)]
        for key, of in groups.items()
        for n, row in enumerate(of)
    ]
    return plain_table(headings, lines)


def _varies(rows: list[dict[str, str]], name: str) -> bool:
    return len({row[name] for row in rows}) > 1


def _order(text: str) -> tuple[float, str]:
    try:
        return float(text), ""
    except ValueError:
        return 0.0, text


def _cells(row: Mapping[str, str], side: str) -> list[str]:
    return [
        tier_of(row),
        f"{row['n_reached']} of {row['n']}" if row["n_reached"] else "",
        _interval(row, "speedup", 1, "{:.2f}"),
        _interval(row, f"{side}top1_difference", 100, "{:+.2f}"),
        row[f"{side}accuracy"],
    ]


def _interval(row: Mapping[str, str], name: str, factor: int, form: str) -> str:
    numbers = [row[f"{name}_{part}"] for part in ("mean", "low", "high")]
    if not numbers[0]:
        return ""
    middle, *ends = [form.format(factor * float(each)) if each else "?" for each in numbers]
    return middle if "?" in ends else f"{middle} ({ends[0]} to {ends[1]})"
