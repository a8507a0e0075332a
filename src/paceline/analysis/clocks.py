"""Compares the virtual clock with the wall clock at equal settings, paired by seed."""

import pandas as pd

from paceline.analysis.axes import clock_axes
from paceline.analysis.configuration import Configuration, configurations, matching, paired
from paceline.analysis.frames import Frame, Row
from paceline.analysis.intervals import interval
from paceline.analysis.statistics.space import COUNTS, DIFFERENCES, POSITIVE
from paceline.analysis.tables import Tables

WALL = ("paced", "measured")
LITTLE = 0.05  # updates of staleness, below which a ratio is meaningless


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
        | _against(other, clock_keys)
        | _agreement(_finished(points), _finished(others))
        for configuration, points in configurations(virtual, tables.axes)
        for other, others in configurations(
            _of_equal_settings(wall, configuration, clock_keys), tables.axes
        )
    ]
    return pd.DataFrame(rows, columns=None if rows else ["kind", *tables.axes, "against"])


def _against(other: Configuration, clock_keys: list[str]) -> Configuration:
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
