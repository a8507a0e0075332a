"""Decides which scheme to use in each situation: by the time to the target, and what it costs.

A situation is given to the user: the number of workers, and the settings that are not the scheme's.
Its schemes are one family: with probability 95 % all statements on accuracies against the reference
are true, and likewise all on times against the best.
"""

import math
from collections.abc import Sequence

import pandas as pd

from paceline.analysis.comparison import reference_scheme
from paceline.analysis.configuration import (
    Configuration,
    counts,
    groups,
    num_processes,
    situation_columns,
    size_of,
    with_processes,
)
from paceline.analysis.family import Member, accuracies, family_times, means_of_family
from paceline.analysis.frames import Frame, Row
from paceline.analysis.searches import edge_of
from paceline.analysis.tables import Tables
from paceline.analysis.time_to_target import OneWorker, best_one_worker, horizon_of, target_of


def decision(tables: Tables) -> Frame:
    """Return one row per situation and scheme.

    - `success`: the share of runs that reach the target; a diverged run is one that does not;
    - `target_seconds`: the mean time to it, restricted to `horizon_seconds`; `worker_seconds`:
      times the number of workers;
    - `speedup`: that of the best one-worker runs, `baseline`, over it, if all of both get there;
      `reference_speedup`: that of the scheme `reference` over it, likewise;
    - `baseline_n`, `baseline_reached`: the runs of `baseline`, and how many of them got there;
    - `tier`: best, the smallest time to the target; tied, if the difference from it is not
      significant; behind, if it is; never, if no run reached the target; empty without a target;
    - `top1_difference`: top-1 (of test, if known) less that of `reference`, a share, over finished
      runs, with simultaneous intervals; `accuracy` judges it (better, worse, equivalent, not
      told), and `within_margin` is 1 if it is shown to lie within the margin of the study;
      `tuning_sd` and `draw_sd` are the standard deviations, in the interval, by which the luck of
      repeated searches for the rate, and the draw of test images, move the difference;
    - the same five, with `one_worker_` before their names, less top-1 of the runs of `baseline`;
    - `at_edge`: the edge of the search range at which its best trial is, so that a better one may
      be beyond it: then nothing may be said against the scheme.
    """
    rows: list[Row] = []
    for situation, points in groups(with_processes(tables.runs), situation_columns(tables.axes)):
        settings = [name for name in tables.axes if name not in situation]
        members = [(situation | arm, own) for arm, own in groups(points, settings)]
        rows += _rows(tables, situation, members)
    return pd.DataFrame(rows)


def is_faster(best: Frame) -> bool:
    """Return False if a situation's best scheme is not shown to be faster than one worker.

    `best`: its row of `decision`. Without runs of one worker the result is True; their best run has
    a speed-up without an interval.
    """
    mean, low = best["speedup_mean"], best["speedup_low"]
    if pd.isna(mean):
        return best["baseline"] in ("", None) or pd.isna(best["baseline"])
    return bool(mean >= 1 if pd.isna(low) else low > 1)


def _rows(tables: Tables, situation: Configuration, members: Sequence[Member]) -> list[Row]:
    """Return the rows of one situation, scheme by scheme."""
    reference = reference_scheme(tables.runs)
    centres = [place for place, (own, _) in enumerate(members) if own["scheme"] == reference]
    centre = centres[0] if len(centres) == 1 else None  # of several settings none is the centre
    horizon = horizon_of(tables, situation)
    goal = target_of(tables, situation)
    one = best_one_worker(tables, situation, horizon) if goal and horizon == horizon else None
    columns = zip(
        members,
        family_times(tables, members, horizon, one, centre),
        accuracies(tables, members, centre),
        _against_one_worker(tables, members, one),
        means_of_family(members, "images_per_second"),
        strict=True,
    )
    return [
        {
            **configuration,
            "n": len(own),
            **counts(own),
            "target": goal["target"] if goal else math.nan,
            "horizon_seconds": horizon,
            **time,
            "worker_seconds": size_of(situation) * time["target_seconds_mean"],
            "reference": reference,
            **accuracy,
            **of_one,
            **speed,
            "at_edge": edge_of(tables, configuration),
        }
        for (configuration, own), time, accuracy, of_one, speed in columns
    ]


def _against_one_worker(
    tables: Tables, members: Sequence[Member], one: OneWorker | None
) -> list[Row]:
    """Return the columns on accuracy against runs of one worker, of those that have several."""
    several = one is not None and all(num_processes(own) > 1 for own, _ in members)
    extended = [*members, (one.configuration, one.points)] if one and several else members
    found = accuracies(tables, extended, len(members) if several else None)
    rows = [{f"one_worker_{name}": value for name, value in row.items()} for row in found]
    return rows[: len(members)]
