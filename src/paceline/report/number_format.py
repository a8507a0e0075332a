"""Formats numbers by their unit, and means with their interval and number of runs n."""

from collections.abc import Callable, Iterable

import pandas as pd

from paceline.analysis.frames import Entry, Frame, setting
from paceline.record.fields import Unit

Form = Callable[[float], str]

_FAR = 10
MISSING = "–"  # noqa: RUF001 (an en dash is what a reader expects in an empty cell)


def count(value: float) -> str:
    return f"{value:,.0f}"


def percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f} %"


def signed_percent(share: float) -> str:
    return f"{100 * share:+.0f} %"


def percent_points(share: float) -> str:
    """Format a difference of shares in percentage points, with its sign."""
    return signed(100 * share)


def signed(value: float, digits: int = 2) -> str:
    return f"{value:+.{digits}f}"


def decimals(value: float, digits: int = 2) -> str:
    return f"{value:.{digits}f}"


def times(value: float) -> str:
    """Format a factor: with two significant digits below 10, and without decimals from 10 on."""
    return f"{value:,.{0 if abs(value) >= 10 else 1 if abs(value) >= 1 else 2}f}"


def seconds(value: float) -> str:
    """Format seconds: with three significant digits below 100, without decimals from 100 on."""
    return f"{value:,.{0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2}f}"


def general(value: float) -> str:
    """Format a number with four significant digits."""
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


def size(num_bytes: float) -> str:
    """Format a number of bytes with three digits, as in "30.7 kB" or "1.5 MB"."""
    return _three_digits(num_bytes, "kB", "MB", 1e3)


def bit_rate(bytes_per_second: float) -> str:
    """Format the bandwidth of a link with three digits, as in "200 Mbit/s" or "10 Gbit/s"."""
    return _three_digits(8 * bytes_per_second, "Mbit/s", "Gbit/s", 1e6)


def _three_digits(value: float, small: str, large: str, unit: float) -> str:
    unit, name = (unit, small) if value < 1000 * unit else (1000 * unit, large)
    return f"{float(f'{value / unit:.3g}'):,g} {name}"


def plural(number: float, noun: str) -> str:
    """Format a count with its noun, as in "2 workers"."""
    return f"{number:.0f} {noun}{'' if number == 1 else 's'}"


def listed(names: Iterable[object]) -> str:
    """Join names or whole numbers as in "a, b and c"."""
    *first, last = map(str, names)
    return f"{', '.join(first)} and {last}" if first else last


_USED = (count, percent, signed_percent, percent_points, signed)
_USED += (decimals, times, seconds, general, size, bit_rate, plural, listed, setting)
FORMS: dict[str, Callable[..., str]] = {  # for templates
    "whole_percent": lambda share: percent(share, 0),
    **{each.__name__: each for each in _USED},
}

_OF_UNIT: dict[Unit, Form] = {
    "images/s": count,
    "s": seconds,
    "share": percent,
    "nats": lambda value: decimals(value, 3),
    "updates": decimals,
    "images": count,
    "bytes": count,
}


def form_of(unit: Unit) -> Form:
    """Return the function that formats values of this unit."""
    return _OF_UNIT.get(unit, general)


def shown(value: Entry, form: Callable[..., str]) -> str:
    """Format `value` by `form`; a missing one is a dash."""
    return MISSING if value is None or pd.isna(value) else form(value)


def few_seeds(row: Frame, name: str, form: Form) -> str:
    """Say that seeds are too few for the interval of a mean; "" if it is narrow enough.

    It is too wide if its ends, of a number above 0, differ by more than a factor of _FAR.
    """
    low, high, n = (row.get(f"{name}_{part}") for part in ("low", "high", "n"))
    is_wide = form not in (percent_points, signed) and not pd.isna(low) and 0 < _FAR * low < high
    if not is_wide:
        return ""
    mean = f"{form(row[f'{name}_mean'])}, " if form is count else ""  # of a rate: it was measured
    return f"{mean}too few seeds ({n:.0f})"


def with_interval(row: Frame, name: str, form: Form | str) -> str:
    """Format the mean `name` of a row as "mean (low to high), n = 3"; a dash without a mean.

    The row has the columns <name>_mean, <name>_low, <name>_high and <name>_n.
    """
    form = FORMS[form] if isinstance(form, str) else form
    mean, low, high, n = (row.get(f"{name}_{part}") for part in ("mean", "low", "high", "n"))
    if pd.isna(mean):
        return MISSING
    if text := few_seeds(row, name, form):
        return text
    ends = "no interval" if pd.isna(low) else f"{form(low)} to {form(high)}"
    return f"{form(mean)} ({ends.replace(' %', '')}), n = {n:.0f}"  # the mean has the unit
