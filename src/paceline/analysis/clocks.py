"""Compares runs on the virtual clock with equal runs on the wall clock, paired by seed.

On the wall clock, runs are measured, or paced: their step times are emulated.
"""

import math

import pandas as pd

from paceline.analysis.configuration import configurations, finished, groups, matching
from paceline.analysis.frames import Frame, Row, as_written
from paceline.analysis.intervals import COUNTS, NONE, difference, interval, paired, ratio
from paceline.analysis.tables import Tables, clock_axes, varying

WALL = ("paced", "measured")
LITTLE = 0.05  # staleness [updates] below which a ratio is meaningless
CLOSE = 0.10  # largest distance of a ratio from 1 that counts as agreement
POINTS = 0.015  # largest difference of top-1 (a share) that counts as agreement
_NUMBERS = ("mean", "low", "high", "n")
_COLUMNS = ("what", "measure", "verdict", "distance", *_NUMBERS)


def clocks(tables: Tables) -> Frame:
    """Return a row per pair of a virtual and a paced or measured configuration of equal settings.

    Configurations that train on other numbers of images are no pair, since one of them was not run
    to show how well the clocks agree.
    `against` is the kind of the paced or measured configuration. `against_<axis>` is its value of
    each axis that determines the clock. Each ratio is the virtual number divided by the other, and
    each difference the virtual number minus the other. If the mean staleness of the other is below
    LITTLE [updates], the row has the difference of staleness in place of the ratio.
    """
    of_clock, runs, rows = clock_axes(tables), tables.runs, list[Row]()
    wall = runs[runs["kind"].isin(WALL)]
    for configuration, points in configurations(runs[runs["kind"] == "virtual"], tables.axes):
        same = {k: v for k, v in configuration.items() if k not in ("kind", *of_clock)}
        for other, others in configurations(matching(wall, same), tables.axes):
            if set(points["samples"].dropna()).isdisjoint(others["samples"].dropna()):
                continue
            row = configuration | {"against": other["kind"]}
            row |= {f"against_{axis}": other[axis] for axis in of_clock}
            rows.append(row | _agreement(finished(points), finished(others)))
    return pd.DataFrame(rows, columns=None if rows else ["kind", *tables.axes, "against"])


def _agreement(virtual: Frame, wall: Frame) -> Row:
    value, base = paired(virtual, wall, "staleness_mean")
    many, few = NONE, NONE
    if len(base) and (base.mean() < LITTLE or (base <= 0).any()):
        few = interval(value - base)
    else:
        many = interval(value / base, COUNTS)
    return (
        ratio(virtual, wall, "images_per_second").named("images_per_second_ratio")
        | many.named("staleness_ratio")
        | few.named("staleness_difference")
        | difference(virtual, wall, "test_top1").named("test_top1_difference")
    )


def clock_agreement(tables: Tables) -> Frame:
    """Return rows that judge for each pair of `clocks` whether the two clocks agree.

    - `what`: the compared number, which is images_per_second, staleness_mean, or test_top1; the
      last only at the largest number of workers of each scheme and setting;
    - `measure`: ratio or difference;
    - `verdict`: within if the mean of the ratio is at most CLOSE away from 1, or if the whole
      interval of the difference of top-1 lies between -POINTS and POINTS; outside if not; unknown
      if no seed was run on both clocks, or if the difference of top-1 has no interval;
    - `distance`: how far the ratio is from 1; a difference of staleness of LITTLE counts as CLOSE.
      Within one `against` and `what`, rows with the largest distance come first.
    """
    rows: list[Row] = []
    for _, same in groups(as_written(clocks(tables)), ["against"]):
        speed, stale = same["images_per_second_ratio_mean"], same["staleness_ratio_mean"]
        # a difference of LITTLE counts as much as a ratio at the limit
        as_ratio = same["staleness_difference_mean"].abs() / LITTLE * CLOSE
        for what, distances in (
            ("images_per_second", (speed - 1).abs()),
            ("staleness_mean", (stale - 1).abs().fillna(as_ratio)),
        ):
            for index, distance in distances.sort_values(ascending=False, kind="stable").items():
                is_stale = what == "staleness_mean" and pd.isna(stale[index])
                measure = "difference" if is_stale else "ratio"
                known, inside = distance == distance, distance <= CLOSE + 1e-9
                rows.append(_judged(same.loc[index], what, measure, distance, known, inside))
        for _, arm in groups(same, ["scheme", *varying(tables)]):
            row = arm.loc[arm["workers"].idxmax()]
            low, high = row["test_top1_difference_low"], row["test_top1_difference_high"]
            inside = low >= -POINTS and high <= POINTS
            rows.append(_judged(row, "test_top1", "difference", math.nan, low == low, inside))
    return pd.DataFrame(rows, columns=["kind", *tables.axes, "against", *_COLUMNS])


def _judged(row: Frame, what: str, measure: str, distance: float, known: bool, inside: bool) -> Row:
    """Return a row of `clock_agreement`."""
    verdict = ("within" if inside else "outside") if known else "unknown"
    numbers = {n: row[f"{what.removesuffix('_mean')}_{measure}_{n}"] for n in _NUMBERS}
    judged = {"what": what, "measure": measure, "verdict": verdict, "distance": distance}
    return dict(row) | judged | numbers
