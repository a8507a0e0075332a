"""Finds the number of workers above which a scheme reaches the target before the reference does."""

import numpy as np
import pandas as pd

from paceline.analysis.comparison import is_reference, reference_scheme
from paceline.analysis.configuration import SPLIT, groups, is_of_scheme, situation_columns
from paceline.analysis.frames import Frame, Row
from paceline.analysis.searches import edge_of
from paceline.analysis.statistics.crossover import crossover
from paceline.analysis.statistics.means import POSITIVE, Array
from paceline.analysis.tables import Tables
from paceline.analysis.time_to_target import Crossings, crossings, targets

_SEED = 0  # of the bootstrap: equal tables result in equal bytes


def crossovers(tables: Tables) -> Frame:
    """Return one row per scheme and situation that was run with several numbers of workers.

    - `least`, `most`: smallest and largest compared number of workers; a number is compared if all
      runs of the scheme and of the reference reached the target with it;
    - `ahead_from`: number of workers from which the scheme reaches the target first; 0 if it does
      so at every compared number, infinity if it does not at the largest;
    - `everywhere`, `nowhere`: shares of bootstrap draws in which `ahead_from` is 0, or infinity;
    - `at_edge`: edge of the search range at which a best trial of the scheme is; the scheme is then
      not judged, because a better setting may lie outside the range.

    There are no rows if the study has no target, or if the reference has several settings.
    """
    rows: list[Row] = []
    if len(targets(tables)) and "workers" in tables.axes and not {*SPLIT} & {*tables.axes}:
        found, reference = crossings(tables, "seconds"), reference_scheme(tables.runs)
        runs = tables.runs[(tables.runs["status"] != "failed") & tables.runs["key"].isin([*found])]
        situation = [name for name in situation_columns(tables.axes) if name != "workers"]
        settings = [name for name in tables.axes if is_of_scheme(name)]
        for given, points in groups(runs, situation):
            arms = [(arm, own, _times(own, found)) for arm, own in groups(points, settings)]
            centre = [times for arm, _, times in arms if is_reference(tables.runs, arm)]
            for arm, own, times in arms if len(centre) == 1 else []:
                both = [] if is_reference(tables.runs, arm) else sorted({*times} & {*centre[0]})
                if len(both) > 1:
                    sizes = own["workers"].unique()
                    edges = (edge_of(tables, given | arm | {"workers": n}) for n in sizes)
                    row = _crossover(both, times, centre[0])
                    row["at_edge"] = next(filter(None, edges), "")
                    rows.append({**given, **arm, "reference": reference, **row})
    return pd.DataFrame(rows, columns=None if rows else ["kind", *tables.axes])


def _times(points: Frame, found: Crossings) -> dict[int, Array]:
    """Return the seconds to the target by number of workers, where every run reached the target."""
    return {
        int(own["workers"]): np.array([found[key].middle for key in rows["key"]])
        for own, rows in groups(points, ["workers"])
        if all(found[key].reached for key in rows["key"])
    }


def _crossover(workers: list[int], own: dict[int, Array], reference: dict[int, Array]) -> Row:
    """Return the columns of one scheme from its times and those of the reference."""
    sides = [reference[n] for n in workers], [own[n] for n in workers]  # swapped: less is better
    place = crossover(workers, *sides, np.random.default_rng(_SEED), space=POSITIVE)
    found = {"least": workers[0], "most": workers[-1], "ahead_from": place.workers}
    found |= {"ahead_from_low": place.low, "ahead_from_high": place.high}
    return found | {"everywhere": place.everywhere, "nowhere": place.nowhere}
