"""Formats numbers for a reader: few digits, and a mean with its interval and n."""

from collections.abc import Callable, Iterable

import pandas as pd

from paceline.analysis.frames import Entry, Frame
from paceline.record.numbers import Unit

Form = Callable[[float], str]

MISSING = "–"  # noqa: RUF001 (an en dash is what a reader expects in an empty cell)


def count(value: float) -> str:
    """Format a number without decimals."""
    return f"{value:,.0f}"


def percent(value: float) -> str:
    """Format a share as percent with one decimal."""
    return f"{100 * value:.1f} %"


def whole_percent(value: float) -> str:
    """Format a share as percent without decimals."""
    return f"{100 * value:.0f} %"


def percent_of_point(value: float) -> str:
    """Format a share as percent with two decimals, one more than a mean has, to rank points."""
    return f"{100 * value:.2f} %"


def percent_points(value: float) -> str:
    """Format a difference of shares in percentage points, with its sign."""
    return f"{100 * value:+.2f}"


def signed(value: float, digits: int = 2) -> str:
    """Format a number with its sign, with two decimals or so many."""
    return f"{value:+.{digits}f}"


def decimals(value: float, digits: int = 2) -> str:
    """Format a number with two decimals, or with so many."""
    return f"{value:.{digits}f}"


def times(value: float) -> str:
    """Format a factor with two digits, or with all before the point."""
    return f"{value:,.{0 if abs(value) >= 10 else 1 if abs(value) >= 1 else 2}f}"


def seconds(value: float) -> str:
    """Format seconds with three digits, or with all before the point."""
    return f"{value:,.{0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2}f}"


def general(value: float) -> str:
    """Format a number with four significant digits."""
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


def size(num_bytes: float) -> str:
    """Format a number of bytes with three digits, as in "30.7 kB" or "1.5 MB"."""
    if num_bytes < 1e6:
        return f"{_three_digits(num_bytes / 1e3)} kB"
    return f"{_three_digits(num_bytes / 1e6)} MB"


def bit_rate(bytes_per_second: float) -> str:
    """Format the bandwidth of a link with three digits, as in "200 Mbit/s" or "10 Gbit/s"."""
    megabits = 8 * bytes_per_second / 1e6
    if megabits < 1e3:
        return f"{_three_digits(megabits)} Mbit/s"
    return f"{_three_digits(megabits / 1e3)} Gbit/s"


def _three_digits(value: float) -> str:
    return f"{float(f'{value:.3g}'):,g}"


def plural(number: float, noun: str) -> str:
    """Format a count with its noun, as in "2 workers"."""
    return f"{number:.0f} {noun}" if number == 1 else f"{number:.0f} {noun}s"


def listed(names: Iterable[str]) -> str:
    """Join names as in "a, b and c"."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def setting(value: Entry) -> str:
    """Format the value of an axis; an empty one is "null"."""
    if pd.isna(value):
        return "null"
    return f"{value:g}" if isinstance(value, float) else str(value)


FORMS = (count, percent, whole_percent, percent_points, signed, decimals, times, seconds)
FORMS += (plural, listed, setting)  # that phrases use

_OF_UNIT: dict[Unit, Form] = {
    "images/s": count,
    "s": seconds,
    "share": percent,
    "nats": lambda value: decimals(value, 3),
    "updates": decimals,
    "images": count,
    "bytes": count,
}


def form_of(unit: Unit, *, each_point: bool = False) -> Form:
    """Return the format for a mean of this unit, or for the number of one point."""
    if each_point and unit == "share":
        return percent_of_point
    return _OF_UNIT.get(unit, general)


def shown(value: Entry, form: Callable[..., str]) -> str:
    """Format `value`, or return a dash if it is missing."""
    return MISSING if value is None or pd.isna(value) else form(value)


def with_interval(row: Frame, name: str, form: Form) -> str:
    """Format `<name>_mean` to `<name>_n` of `row` as "mean (low to high), n = 3".

    The result is a dash without a mean.
    """
    n = int(row[f"{name}_n"])
    mean, low, high = (row[f"{name}_{part}"] for part in ("mean", "low", "high"))
    if pd.isna(mean):
        return MISSING
    spread = "no interval" if pd.isna(low) else f"{_bare(form(low))} to {_bare(form(high))}"
    return f"{form(mean)} ({spread}), n = {n}"


def interval(row: Frame, name: str, form: Form) -> str:
    """Format `<name>_mean` to `<name>_high` of `row` as "mean (low to high)".

    It is "" without a mean, or without the columns, as in a table of an older version of the code.
    """
    mean, low, high = (row.get(f"{name}_{part}") for part in ("mean", "low", "high"))
    if pd.isna(mean):
        return ""
    return form(mean) if pd.isna(low) else f"{form(mean)} ({form(low)} to {form(high)})"


def _bare(text: str) -> str:
    """Remove the unit from a number, since the mean beside it has one."""
    return text.removesuffix(" %")
