"""Finds the number of workers from which a scheme is sooner at the target than the reference."""

import numpy as np
import pandas as pd

from paceline.analysis.comparison import reference_scheme
from paceline.analysis.configuration import SPLIT, groups, situation_columns
from paceline.analysis.frames import Frame, Row
from paceline.analysis.searches import edge_of
from paceline.analysis.statistics.crossover import crossover
from paceline.analysis.statistics.estimate import Array
from paceline.analysis.statistics.space import POSITIVE
from paceline.analysis.tables import Tables
from paceline.analysis.target_times import Crossings, crossings
from paceline.analysis.time_to_target import targets

_SEED = 0  # of the bootstrap: equal tables result in equal bytes


def crossovers(tables: Tables) -> Frame:
    """Return one row per scheme and situation that was run with several numbers of workers.

    `ahead_from` is the number of workers, between `least` and `most`, from which its time to the
    target is the shorter: 0 if it is at every number, infinity if it is not at the largest.
    `everywhere` and `nowhere` are the shares of draws that say so, and `at_edge` is an edge of what
    was tried at which a best trial of the scheme lies: then nothing may be said against it. Numbers
    of workers at which a run of either did not reach the target are left out. The table has no rows
    without a target, or with several settings of the reference.
    """
    goals = targets(tables)
    if not len(goals) or "workers" not in tables.axes or {*SPLIT} & {*tables.axes}:
        return pd.DataFrame(columns=["kind", *tables.axes])
    found, reference = crossings(tables, goals), reference_scheme(tables.runs)
    runs = tables.runs[(tables.runs["status"] != "failed") & tables.runs["key"].isin(list(found))]
    situation = [name for name in situation_columns(tables.axes) if name != "workers"]
    settings = [name for name in tables.axes if name.startswith("scheme")]
    rows: list[Row] = []
    for given, points in groups(runs, situation) if len(runs) else []:
        arms = groups(points, settings)
        others = [(arm, own) for arm, own in arms if arm["scheme"] != reference]
        centre = [own for arm, own in arms if arm["scheme"] == reference]
        if len(centre) != 1:
            continue
        known = _times(centre[0], found)
        for arm, own in others:
            if row := _crossover(_times(own, found), known):
                sizes = own["workers"].unique()
                edges = (edge_of(tables, {**given, **arm, "workers": n}) for n in sizes)
                row["at_edge"] = next(filter(None, edges), "")
                rows.append({**given, **arm, "reference": reference, **row})
    return pd.DataFrame(rows, columns=None if rows else ["kind", *tables.axes])


def _times(points: Frame, found: Crossings) -> dict[int, Array]:
    """Return the seconds of all runs to the target by workers, of which all runs reach it."""
    return {
        int(own["workers"]): np.array([found[key].middle for key in rows["key"]])
        for own, rows in groups(points, ["workers"])
        if all(found[key].reached for key in rows["key"])
    }


def _crossover(own: dict[int, Array], reference: dict[int, Array]) -> Row | None:
    """Return the columns of one scheme; None unless both have two numbers of workers in common."""
    both = sorted(n for n in own if n in reference)
    if len(both) < 2:
        return None
    rng = np.random.default_rng(_SEED)
    sides = [reference[n] for n in both], [own[n] for n in both]  # swapped: less is better
    place = crossover(both, *sides, rng, space=POSITIVE)
    ends = {"ahead_from_low": place.low, "ahead_from_high": place.high}
    shares = {"everywhere": place.everywhere, "nowhere": place.nowhere}
    return {"least": both[0], "most": both[-1], "ahead_from": place.workers} | ends | shares
