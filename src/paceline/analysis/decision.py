"""Decides which scheme to use in each situation: by the time to the target, and what it costs.

A situation is what a user finds himself in: the number of workers, and the settings that are not
the scheme's. Its schemes are one family, of which at most 5 % hold a false statement of a kind: on
accuracies against the reference, or on times against the best.
"""

import math
from collections.abc import Sequence

import pandas as pd

from paceline.analysis.configuration import (
    Configuration,
    groups,
    matching,
    situation_columns,
    with_processes,
)
from paceline.analysis.family_accuracy import accuracies, means_of_family
from paceline.analysis.family_times import family_times
from paceline.analysis.summary import counts
from paceline.analysis.tables import Frame, Row, Tables
from paceline.analysis.target_times import crossings
from paceline.analysis.time_to_target import targets
from paceline.analysis.tuned import edge_of


def decision(tables: Tables) -> Frame:
    """Return one row per situation and scheme.

    - `success`: the share of runs that reach the target; a diverged run is one that does not;
    - `target_seconds`: the mean time to it, restricted to `horizon_seconds`;
    - `speedup`: that of the best one-worker runs, `baseline`, over it;
    - `worker_seconds`: the number of workers times `target_seconds`;
    - `tier`: best, the smallest time to the target; tied, not told from it; behind; never, if no
      run reached the target; empty without a target;
    - `top1_difference`: top-1 (of test, if known) less that of `reference`, a share, over finished
      runs, with simultaneous intervals; `accuracy` judges it (better, worse, equivalent, not
      told), and `within_margin` is 1 if it is shown to lie within the margin of the study;
      `tuning_sd` is the standard deviation, in the interval, by which the luck of repeated searches
      for the rate moves a mean, and `draw_sd` that of the difference by the draw of test images;
    - `at_edge`: the edge of what was tried at which its best trial lies, where a better one may lie
      beyond: then nothing may be said against it.
    """
    goals = targets(tables)
    found = crossings(tables, goals)
    rows: list[Row] = []
    for situation, points in groups(with_processes(tables.runs), situation_columns(tables.axes)):
        same = matching(goals, {name: situation[name] for name in ("kind", "data")})
        target = float(same["target"].iloc[0]) if len(same) else math.nan
        settings = [name for name in tables.axes if name not in situation]
        arms = groups(points, settings)
        times = family_times(tables, situation, [own for _, own in arms], target, found)
        rows += _rows(tables, situation, arms, times)
    return pd.DataFrame(rows)


def _rows(
    tables: Tables,
    situation: Configuration,
    arms: Sequence[tuple[Configuration, Frame]],
    times: Sequence[Row],
) -> list[Row]:
    """Return the rows of one situation, scheme by scheme, beside their columns on time."""
    members = [own for _, own in arms]
    judged = accuracies(tables, members, [situation | arm for arm, _ in arms])
    speeds = means_of_family(members, "images_per_second")
    edges = [edge_of(tables, situation | arm) for arm, _ in arms]
    columns = zip(times, judged, speeds, edges, strict=True)
    return [
        situation
        | arm
        | {"n": len(own)}
        | counts(own)
        | {**time, **accuracy, **speed, "at_edge": edge}
        for (arm, own), (time, accuracy, speed, edge) in zip(arms, columns, strict=True)
    ]
