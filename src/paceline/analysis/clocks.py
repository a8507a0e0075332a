"""Compares the virtual clock with the wall clock at equal settings, paired by seed."""

import math

import pandas as pd

from paceline.analysis.axes import clock_axes, varying
from paceline.analysis.configuration import (
    Configuration,
    configurations,
    groups,
    matching,
    paired,
)
from paceline.analysis.frames import Frame, Row, as_written
from paceline.analysis.intervals import interval
from paceline.analysis.statistics.space import COUNTS, DIFFERENCES, POSITIVE
from paceline.analysis.tables import Tables

WALL = ("paced", "measured")
LITTLE = 0.05  # updates of staleness, below which a ratio is meaningless
CLOSE = 0.10  # largest distance of a ratio from one
POINTS = 0.015  # largest difference of top-1, a share
_NUMBERS = ("mean", "low", "high", "n")
_COLUMNS = ("what", "measure", "verdict", "distance", *_NUMBERS)


def clocks(tables: Tables) -> Frame:
    """Return one row per pair of a virtual and a paced or measured configuration.

    The two have equal settings. `against` is the kind of the second configuration;
    `against_<axis>` is its value of an axis that determines the clock. `images_per_second_ratio`
    and `staleness_ratio` are virtual over the other; if the mean staleness of the other is below
    LITTLE [updates], `staleness_difference` is filled instead. `test_top1_difference` is virtual
    minus the other. The table has no rows if a study has one clock.
    """
    clock_keys = clock_axes(tables)
    runs = tables.runs
    virtual, wall = runs[runs["kind"] == "virtual"], runs[runs["kind"].isin(WALL)]
    rows = [
        configuration
        | _other_clock(other, clock_keys)
        | _agreement(_finished(points), _finished(others))
        for configuration, points in configurations(virtual, tables.axes)
        for other, others in configurations(
            _of_equal_settings(wall, configuration, clock_keys), tables.axes
        )
    ]
    return pd.DataFrame(rows, columns=None if rows else ["kind", *tables.axes, "against"])


def _other_clock(other: Configuration, clock_keys: list[str]) -> Configuration:
    return {"against": other["kind"]} | {f"against_{axis}": other[axis] for axis in clock_keys}


def _of_equal_settings(wall: Frame, configuration: Configuration, clock_keys: list[str]) -> Frame:
    return matching(
        wall, {k: v for k, v in configuration.items() if k not in ("kind", *clock_keys)}
    )


def _finished(points: Frame) -> Frame:
    return points[points["status"] == "finished"]


def _agreement(virtual: Frame, wall: Frame) -> Row:
    speed = paired(virtual, wall, "images_per_second")
    stale = paired(virtual, wall, "staleness_mean")
    top1 = paired(virtual, wall, "test_top1")
    none = stale.iloc[:0]
    few = stale["base"].mean() < LITTLE or (stale["base"] <= 0).any()
    many, few = (none, stale) if few else (stale, none)
    return (
        interval(speed["value"] / speed["base"], POSITIVE).named("images_per_second_ratio")
        | interval(many["value"] / many["base"], COUNTS).named("staleness_ratio")
        | interval(few["value"] - few["base"]).named("staleness_difference")
        | interval(top1["value"] - top1["base"], DIFFERENCES).named("test_top1_difference")
    )


def clock_agreement(tables: Tables) -> Frame:
    """Return rows per virtual configuration and kind `against` which it is compared.

    `what` is images_per_second, staleness_mean or test_top1; test_top1 is judged only at the
    largest number of workers of each scheme and setting. `measure` is ratio or difference.
    `verdict` is within or outside: the mean of a ratio must be within CLOSE, the whole interval of
    a top-1 difference within POINTS. It is unknown without a pair of seeds or without an interval.
    `distance` is the distance from agreement on the scale of CLOSE; rows of one kind and number are
    sorted by it in descending order.
    """
    rows: list[Row] = []
    for _, same in groups(as_written(clocks(tables)), ["against"]):
        ratio, difference = same["staleness_ratio_mean"], same["staleness_difference_mean"]
        # a difference of LITTLE counts as much as a ratio at the limit
        as_ratio = difference.abs() / LITTLE * CLOSE
        for what, distances in (
            ("images_per_second", (same["images_per_second_ratio_mean"] - 1).abs()),
            ("staleness_mean", (ratio - 1).abs().fillna(as_ratio)),
        ):
            for index, distance in distances.sort_values(ascending=False, kind="stable").items():
                measure = "ratio"
                if what == "staleness_mean" and pd.isna(ratio[index]):
                    measure = "difference"
                inside = distance <= CLOSE + 1e-9
                rows.append(_judged(same.loc[index], what, measure, distance, inside))
        for _, arm in groups(same, ["scheme", *varying(tables)]):
            row = arm.loc[arm["workers"].idxmax()]
            low, high = row["test_top1_difference_low"], row["test_top1_difference_high"]
            inside = low >= -POINTS and high <= POINTS
            rows.append(_judged(row, "test_top1", "difference", math.nan, inside, known=low == low))
    return pd.DataFrame(rows, columns=["kind", *tables.axes, "against", *_COLUMNS])


def _judged(
    row: Frame, what: str, measure: str, distance: float, inside: bool, known: bool | None = None
) -> Row:
    """Return a row of `clock_agreement`; the judgement is `known` where the distance is."""
    known = distance == distance if known is None else known
    verdict = ("within" if inside else "outside") if known else "unknown"
    numbers = {n: row[f"{what.removesuffix('_mean')}_{measure}_{n}"] for n in _NUMBERS}
    judged = {"what": what, "measure": measure, "verdict": verdict, "distance": distance}
    return dict(row) | judged | numbers
