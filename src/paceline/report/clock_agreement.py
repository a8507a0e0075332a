"""How far the virtual clock agrees with the wall clock, in sentences."""

from typing import Any

import pandas as pd

from paceline.analysis.clocks import LITTLE, WALL
from paceline.analysis.tables import Frame
from paceline.report.findings import Findings, groups
from paceline.report.number_format import decimals, percent_points, plural, setting

CLOSE = 0.10  # of a ratio from one
POINTS = 0.015  # of top-1
_MOST = 3  # named in a sentence
_ACCURACY = "test_top1_difference"


def has_twins(findings: Findings) -> bool:
    """Whether the study has runs on both clocks."""
    kinds = set(findings.tables.runs["kind"])
    return "virtual" in kinds and bool(kinds.intersection(WALL))


def agreement(findings: Findings) -> list[str]:
    """Two sentences for each kind that the virtual clock is held against."""
    if not has_twins(findings):
        return []
    if not len(findings.clocks):
        return ["No virtual point has a twin of equal settings on the wall clock."]
    found = []
    for where, rows in groups(findings.clocks, ["against"]):
        found += [_within(findings, rows, where["against"]), _accuracy(findings, rows)]
    return found


def _within(findings: Findings, rows: Frame, against: str) -> str:
    speed = (rows["images_per_second_ratio_mean"] - 1).abs()
    stale = (rows["staleness_ratio_mean"] - 1).abs()
    # as much for a difference of LITTLE as for a ratio at the border
    stale = stale.fillna(rows["staleness_difference_mean"].abs() / LITTLE * CLOSE)
    unpaired = int(speed.isna().sum())
    rest = f"; {plural(unpaired, 'configuration')} without a finished pair" if unpaired else ""
    speeds = _close(findings, rows, speed, "images_per_second_ratio")
    stales = _close(findings, rows, stale, "staleness_ratio", "staleness_difference")
    return (
        f"Virtual against {against}: images/s agree within 10 % {speeds}, mean staleness "
        f"{stales}{rest}."
    )


def _close(findings: Findings, rows: Frame, off: Frame, *names: str) -> str:
    """In how many configurations, and the worst: all outside up to a few, else the last inside."""
    known = off.dropna().sort_values(ascending=False, kind="stable")
    if known.empty:
        return "nowhere, for want of pairs"
    outside = known[known > CLOSE + 1e-9]
    worst = outside.index[:_MOST] if len(outside) else known.index[:1]
    named = "; ".join(_value(findings, rows.loc[place], names) for place in worst)
    inside = f"in {len(known) - len(outside)} of {plural(len(known), 'configuration')}"
    return f"{inside} (furthest: {named}{_more(len(outside))})"


def _value(findings: Findings, row: Any, names: tuple[str, ...]) -> str:
    name = next(name for name in names if pd.notna(row[f"{name}_mean"]))
    mean = row[f"{name}_mean"]
    text = f"{mean:+.2f} updates" if name.endswith("_difference") else f"ratio {decimals(mean)}"
    return f"{_named(findings, row)}: {text}, n = {int(row[f'{name}_n'])}"


def _accuracy(findings: Findings, rows: Frame) -> str:
    """At the most workers of each scheme and setting."""
    places = [same["workers"].idxmax() for _, same in groups(rows, ["scheme", *findings.varying])]
    most = rows.loc[places]
    low, high = (most[f"{_ACCURACY}_{end}"] for end in ("low", "high"))
    fits = (low >= -POINTS) & (high <= POINTS)
    known = low.notna()
    text = (
        f"Test top-1 at the most workers, virtual minus {rows['against'].iloc[0]}: the 95 % "
        f"interval lies within ±{100 * POINTS:g} points in {int(fits.sum())} of "
        f"{plural(int(known.sum()), 'configuration')}"
    )
    text += f" ({_spreads(findings, most[fits])})" if fits.any() else ""
    outside = most[known & ~fits]
    text += f", not for {_spreads(findings, outside)}" if len(outside) else ""
    few = int((~known).sum())
    rest = f"; {plural(few, 'configuration')} with fewer than two seeds in common" if few else ""
    return f"{text}{rest}."


def _spreads(findings: Findings, rows: Frame) -> str:
    texts = [
        f"{_named(findings, row)}: {percent_points(row[f'{_ACCURACY}_low'])} to "
        f"{percent_points(row[f'{_ACCURACY}_high'])}, n = {int(row[f'{_ACCURACY}_n'])}"
        for _, row in rows.iloc[:_MOST].iterrows()
    ]
    return "; ".join(texts) + _more(len(rows))


def _more(number: int) -> str:
    return f"; {number - _MOST} more" if number > _MOST else ""


def _named(findings: Findings, row: Any) -> str:
    parts = [f"{axis} {setting(row[axis])}" for axis in findings.varying]
    return ", ".join([str(row["scheme"]), plural(int(row["workers"]), "worker"), *parts])
