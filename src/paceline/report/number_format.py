"""Numbers as a reader wants them: sensible digits, an interval and n beside the mean."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

MISSING = "–"  # noqa: RUF001 (an en dash is what a reader expects in an empty cell)


def count(value: float) -> str:
    return f"{value:,.0f}"


def percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def percent_points(value: float) -> str:
    return f"{100 * value:+.2f}"


def decimals(value: float) -> str:
    return f"{value:.2f}"


def seconds(value: float) -> str:
    return f"{value:,.{0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2}f}"


def shown(value: Any, form) -> str:
    return MISSING if value is None or pd.isna(value) else form(value)


def with_interval(row: Mapping[str, Any], name: str, form) -> str:
    """`mean (low to high), n = 3` of the columns `<name>_mean` to `<name>_n`; a dash without."""
    n = int(row[f"{name}_n"])
    mean, low, high = (row[f"{name}_{part}"] for part in ("mean", "low", "high"))
    if pd.isna(mean):
        return MISSING
    spread = "no interval" if pd.isna(low) else f"{bare(form(low))} to {bare(form(high))}"
    return f"{form(mean)} ({spread}), n = {n}"


def bare(text: str) -> str:
    """Without its unit, which the mean beside it carries."""
    return text.removesuffix(" %")


def plural(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def setting(value: Any) -> str:
    """The value of an axis."""
    if value is None or pd.isna(value):
        return "null"
    return f"{value:g}" if isinstance(value, float) else str(value)
