"""Statistics of `paceline.analysis.statistics` in planted worlds: coverage, size, power.

Coverage is the share of draws in which an interval, or all of a family, contains the truth. Size is
the share of families in which anything is claimed that is false; power, that something true is.
"""

from typing import Any

from benchmarks import planted_accuracies, planted_times
from benchmarks.planted_world import Found
from benchmarks.row import row

DRAWS = 10_000
PAIRED = 600  # draws of schemes that share seeds, which take longer
PROMISED = (*planted_accuracies.PROMISED, *planted_times.PROMISED)
SHOWN = (*planted_accuracies.SHOWN, *planted_times.SHOWN)  # power and limits


def rows() -> list[dict[str, Any]]:
    plain = [_row(found) for world in (*PROMISED, *SHOWN) for found in world(DRAWS)]
    return [*plain, *(_row(found) for found in planted_accuracies.told(PAIRED))]


def _row(found: Found) -> dict[str, Any]:
    percent, nominal = 100 * found.share, 100 * found.aim.nominal
    ratio = found.share / found.aim.nominal
    return row(found.name, percent, nominal, "%", ratio, found.aim.target, found.holds)
