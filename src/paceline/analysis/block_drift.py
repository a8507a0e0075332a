"""Judges the blocks of a study by how far the machine drifted between their two references.

A block has all configurations of one seed. Its reference ran first, and again last: the second run,
which has a `repeat` in runs.csv, is in `repeats` and in no other table.
"""

import math

import pandas as pd

from paceline.analysis.configuration import Configuration, configurations, matching
from paceline.analysis.tables import Frame, Row, Tables

MOST = 0.05  # drift of a block that is kept
MOST_IDLE = 0.5  # share of the minutes of a block that is kept: it was interrupted
KEPT = "kept"
_COLUMNS = ["block", "started", "hour", "minutes", "first", "last", "drift", "verdict"]


def blocks(tables: Tables) -> Frame:
    """Return one row per block, by its seed in `block`; none for a study without repeats.

    `started` is the time of its first run, `hour` that of the day (UTC), and `minutes` the time to
    the end of its last. `first` and `last` are images/s of the reference, `drift` is last / first
    - 1. `verdict` is KEPT, or says why the block is dropped.
    """
    if tables.repeats.empty:
        return pd.DataFrame(columns=_COLUMNS)
    rows = [_row(tables, seed) for seed in dict.fromkeys(tables.runs["seed"])]
    return pd.DataFrame(rows, columns=_COLUMNS)


def reference(tables: Tables) -> Configuration:
    """Return the configuration of the reference; only for a study with repeats."""
    configuration, _ = next(configurations(tables.repeats, tables.axes))
    return configuration


def timed(tables: Tables) -> Frame:
    """Return the finished points, without those of dropped blocks: their throughput counts."""
    finished, judged = tables.finished, blocks(tables)
    dropped = judged.loc[judged["verdict"] != KEPT, "block"]
    return finished[~finished["seed"].isin(dropped)]


def _row(tables: Tables, seed: int) -> Row:
    once = tables.runs[tables.runs["seed"] == seed]
    again = tables.repeats[tables.repeats["seed"] == seed]
    first = _speed(matching(once, reference(tables)))
    last = _speed(again)
    row = {"block": seed, "first": first, "last": last, "drift": last / first - 1}
    idle = math.nan
    if "started" in once:
        runs = pd.concat([once, again])
        starts = pd.to_datetime(runs["started"])
        ends = starts + pd.to_timedelta(runs["wall_seconds"].astype(float), unit="s")
        seconds = (ends.max() - starts.min()).total_seconds()
        idle = 1 - runs["wall_seconds"].sum() / seconds
        row |= {"started": runs.loc[starts.idxmin(), "started"], "minutes": seconds / 60}
        row["hour"] = starts.min().hour
    return row | {"verdict": _verdict(row["drift"], idle)}


def _speed(points: Frame) -> float:
    """Return images/s of the only point, NaN if there is none that finished."""
    finished = points[points["status"] == "finished"]
    return float(finished["images_per_second"].iloc[0]) if len(finished) else math.nan


def _verdict(drift: float, idle: float) -> str:
    if math.isnan(drift):
        return "dropped: a reference is missing"
    if idle > MOST_IDLE:
        return "dropped: interrupted"
    return KEPT if abs(drift) <= MOST else "dropped: drift"
