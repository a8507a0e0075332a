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
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def shown(value: Any, form) -> str:
    return MISSING if value is None or pd.isna(value) else form(value)


def with_interval(row: Mapping[str, Any], name: str, form) -> str:
    """`mean (low to high), n = 3` of the columns `<name>_mean` to `<name>_n`; a dash without."""
    n = int(row[f"{name}_n"])
    mean, low, high = (row[f"{name}_{part}"] for part in ("mean", "low", "high"))
    if pd.isna(mean):
        return MISSING
    spread = "no interval" if pd.isna(low) else f"{form(low)} to {form(high)}"
    return f"{form(mean)} ({spread}), n = {n}"


def setting(value: Any) -> str:
    """The value of an axis."""
    if value is None or pd.isna(value):
        return "null"
    return f"{value:g}" if isinstance(value, float) else str(value)
