"""Statistics of `paceline.analysis.statistics` in planted worlds: coverage, size, power.

Coverage is the share of draws in which an interval, or all of a family, contains the truth. Size is
the share of families in which anything is claimed that is false; power, that something true is.
"""

from collections.abc import Sequence
from typing import Any

from benchmarks import planted_accuracies, planted_searches, planted_times
from benchmarks.planted_searches import Search
from benchmarks.planted_world import Found
from benchmarks.row import row

DRAWS = 10_000
OF_SEARCHES = 600  # draws, which take 0.1 s each
PROMISED = (*planted_accuracies.PROMISED, *planted_times.PROMISED)
SHOWN = (*planted_accuracies.SHOWN, *planted_times.SHOWN)  # power and limits


def rows() -> list[dict[str, Any]]:
    plain = [_row(found) for world in (*PROMISED, *SHOWN) for found in world(DRAWS)]
    searched = [_row(found) for world in planted_searches.WORLDS for found in world(OF_SEARCHES)]
    regrets = list[dict[str, Any]]()
    for workers in (planted_searches.MANY_TRAIN, planted_searches.FEW_TRAIN):
        *ours, theirs = planted_searches.regrets(workers, 240)
        regrets += [_of_search(workers, each, theirs) for each in ours]
    return [*plain, *searched, *regrets]


def _of_search(workers: Sequence[int], own: Search, other: Search) -> dict[str, Any]:
    luck = f"luck {own.luck:.2f} ({other.luck:.2f})"
    where = ", ".join(map(str, workers))
    name = f"{where} workers, {own.name}: mean regret ({other.name}); {luck}"
    ratio = own.regret / other.regret
    return row(name, own.regret, other.regret, "points", ratio, "shown", True)


def _row(found: Found) -> dict[str, Any]:
    percent, nominal = 100 * found.share, 100 * found.aim.nominal
    ratio = found.share / found.aim.nominal
    return row(found.name, percent, nominal, "%", ratio, found.aim.target, found.holds)
