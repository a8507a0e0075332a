"""The virtual clock against the wall clock, at equal settings, seed by seed."""

import pandas as pd

from paceline.analysis.axes import clock_axes
from paceline.analysis.configuration import Configuration, configurations, matching, paired
from paceline.analysis.intervals import interval
from paceline.analysis.tables import Frame, Row, Tables

WALL = ("paced", "measured")
LITTLE = 0.05  # updates of staleness, below which a ratio would tell nothing


def clocks(tables: Tables) -> Frame:
    """Return a row per virtual configuration and paced (or measured) one of equal settings.

    `against`: the kind of the other side, `against_<axis>` its value of an axis that tells clocks
    apart. `images_per_second_ratio`, `staleness_ratio`: virtual over the other;
    `staleness_difference` instead where the other's mean is below LITTLE [updates];
    `test_top1_difference`: virtual minus the other. Header only where a study has one clock.
    """
    own = clock_axes(tables)
    runs = tables.runs
    virtual, wall = runs[runs["kind"] == "virtual"], runs[runs["kind"].isin(WALL)]
    rows = [
        configuration | _against(other, own) | _agreement(_finished(points), _finished(others))
        for configuration, points in configurations(virtual, tables.axes)
        for other, others in configurations(_equal(wall, configuration, own), tables.axes)
    ]
    return pd.DataFrame(rows, columns=None if rows else ["kind", *tables.axes, "against"])


def _against(other: Configuration, own: list[str]) -> Configuration:
    return {"against": other["kind"]} | {f"against_{axis}": other[axis] for axis in own}


def _equal(wall: Frame, configuration: Configuration, own: list[str]) -> Frame:
    return matching(wall, {k: v for k, v in configuration.items() if k not in ("kind", *own)})


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
        interval(speed["value"] / speed["base"]).named("images_per_second_ratio")
        | interval(many["value"] / many["base"]).named("staleness_ratio")
        | interval(few["value"] - few["base"]).named("staleness_difference")
        | interval(top1["value"] - top1["base"]).named("test_top1_difference")
    )
