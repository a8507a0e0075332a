"""Judges the blocks of a study by how much the speed of the machine drifted within each.

A block consists of the runs of one seed, with all configurations, which were made one after
another. The reference configuration runs first in the block and again last. The second of these
runs has a number above 0 in the column `repeat` of runs.csv and is not a point of the study.
"""

import math

import pandas as pd

from paceline.analysis.configuration import finished
from paceline.analysis.frames import Frame, Row

MOST = 0.15  # drift up to which a block is kept; without drift, two runs differ by 8 % (s.d.)
MOST_IDLE = 0.5  # share of a block's minutes; above it, the block was interrupted
KEPT = "kept"
THROUGHPUT = ("images_per_second", "updates_per_second", "real_images_per_second")
_COLUMNS = ["block", "started", "hour", "minutes", "first", "last", "drift", "verdict"]


def judged(runs: Frame, repeats: Frame, axes: list[str]) -> Frame:
    """Return one row per block; no rows if the reference configuration was not run again.

    Runs of another kind than the reference are in no block.

    `minutes` last from the start of its first run (`started`; `hour` is in UTC) to the end of its
    last run. `first` and `last` are images/s of the two runs of the reference configuration, and
    `drift` is last / first - 1. `verdict` is KEPT, or the reason why the block is dropped.
    """
    runs = runs[runs["kind"].isin(repeats["kind"])]
    seeds = dict.fromkeys(runs["seed"])
    reference = repeats[["kind", *axes]].drop_duplicates()
    rows = [_row(runs[runs["seed"] == s], repeats[repeats["seed"] == s], reference) for s in seeds]
    return pd.DataFrame(rows, columns=_COLUMNS)


def minutes_of(runs: Frame) -> float:
    """Return the minutes from the earliest start of these runs to the latest end of any of them."""
    starts = pd.to_datetime(runs["started"])
    ends = starts + pd.to_timedelta(runs["wall_seconds"].to_numpy(float), unit="s")
    return (ends.max() - starts.min()).total_seconds() / 60


def without_dropped(runs: Frame, blocks: Frame, repeats: Frame) -> Frame:
    """Return `runs`, with the columns of throughput empty in rows of dropped blocks."""
    dropped = runs["seed"].isin(blocks.loc[blocks["verdict"] != KEPT, "block"])
    dropped &= runs["kind"].isin(repeats["kind"])
    numbers = [name for name in THROUGHPUT if name in runs]
    return runs.assign(**{name: runs[name].mask(dropped) for name in numbers})


def _row(once: Frame, again: Frame, reference: Frame) -> Row:
    first, last = _speed(once.merge(reference)), _speed(again)
    runs: Frame = pd.concat([once, again])
    started, minutes = runs["started"].min(), minutes_of(runs)
    idle = 1 - runs["wall_seconds"].sum() / (60 * minutes)
    return {
        "block": once["seed"].iloc[0],
        "started": started,
        "hour": pd.Timestamp(started).hour,
        "minutes": minutes,
        "first": first,
        "last": last,
        "drift": last / first - 1,
        "verdict": _verdict(last / first - 1, idle),
    }


def _speed(points: Frame) -> float:
    """Return images/s of `points`, which has one row; NaN if that run did not finish."""
    done = finished(points)
    return float(done["images_per_second"].iloc[0]) if len(done) else math.nan


def _verdict(drift: float, idle: float) -> str:
    if math.isnan(drift):
        return "dropped: a reference is missing"
    if idle > MOST_IDLE:
        return "dropped: interrupted"
    return KEPT if abs(drift) <= MOST else "dropped: drift"
