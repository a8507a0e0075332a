"""Writes numbers as a reader wants them: sensible digits, an interval and n beside the mean."""

from collections.abc import Callable

import pandas as pd

from paceline.analysis.tables import Entry, Frame
from paceline.measurement.numbers import Unit

Form = Callable[[float], str]

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


def three_decimals(value: float) -> str:
    return f"{value:.3f}"


def percent_of_point(value: float) -> str:
    """Write a share with two decimals: without seeds around it, a digit more says who is first."""
    return f"{100 * value:.2f} %"


def general(value: float) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


_FORMS: dict[Unit, Form] = {
    "images/s": count,
    "s": seconds,
    "share": percent,
    "nats": three_decimals,
    "updates": decimals,
    "images": count,
    "bytes": count,
}


def form_of(unit: Unit, *, each_point: bool = False) -> Form:
    """Return how to write a mean of this unit, or the number of one point."""
    if each_point and unit == "share":
        return percent_of_point
    return _FORMS.get(unit, general)


def shown(value: Entry, form: Callable[..., str]) -> str:
    """Write `value`, or a dash where there is none."""
    return MISSING if value is None or pd.isna(value) else form(value)


def with_interval(row: Frame, name: str, form: Form) -> str:
    """Write `mean (low to high), n = 3` of `<name>_mean` to `<name>_n`; a dash without a mean."""
    n = int(row[f"{name}_n"])
    mean, low, high = (row[f"{name}_{part}"] for part in ("mean", "low", "high"))
    if pd.isna(mean):
        return MISSING
    spread = "no interval" if pd.isna(low) else f"{bare(form(low))} to {bare(form(high))}"
    return f"{form(mean)} ({spread}), n = {n}"


def bare(text: str) -> str:
    """Strip a number of its unit, which the mean beside it carries."""
    return text.removesuffix(" %")


def plural(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def setting(value: Entry) -> str:
    """Write the value of an axis."""
    if pd.isna(value):
        return "null"
    return f"{value:g}" if isinstance(value, float) else str(value)
