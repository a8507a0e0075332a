"""One search of five schemes, repeated with other seeds: what it chose, and how much that differs.

From the tables of the study `searches`. Each search predicts, from its own trials, what it may have
missed; the spread of the seeds that used its settings adds to this.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.row import row
from paceline.analysis.configuration import configurations, matching
from paceline.analysis.searches import lucks
from paceline.analysis.tables import read_tables

REPORTS = Path(__file__).parent.parent / "reports"
AXES = ["scheme", "tuning.seed"]
REFERENCE = "sync_allreduce"


class Chosen(NamedTuple):
    """What one search chose for a scheme.

    `words`: learning rate and momentum. `top1` [seeds]: test accuracy on fresh seeds, in points.
    `missed` [draws]: of the search, in points.
    """

    words: str
    top1: np.ndarray
    missed: np.ndarray


def rows(folder: Path = REPORTS / "searches") -> list[dict[str, Any]]:
    tables = read_tables(folder)
    members = list(configurations(tables.finished, AXES))
    trials = tables.tuning[tables.tuning["chosen"] == "true"]
    schemes = dict[str, list[Chosen]]()
    for (each, runs), luck in zip(members, lucks(tables, [c for c, _ in members]), strict=True):
        trial = matching(trials, {name: each[name] for name in AXES}).iloc[0]
        words = f"{trial['lr']:.2g} and {trial['momentum']:.2f}"
        top1 = 100 * runs.sort_values("seed")["test_top1"].to_numpy(float)
        schemes.setdefault(each["scheme"], []).append(Chosen(words, top1, 100 * luck.regret))
    found = []
    for scheme, searches in schemes.items():
        what = ", ".join(f"{each.words}: {each.top1.mean():.2f} %" for each in searches)
        name = f"{scheme}, accuracy with the rate and the momentum of each search ({what})"
        found.append(_deviation(name, searches))
    apart = {
        scheme: [
            Chosen("", own.top1 - other.top1, own.missed - other.missed)
            for own, other in zip(searches, schemes[REFERENCE], strict=True)
        ]
        for scheme, searches in schemes.items()
    }
    del apart[REFERENCE]
    return [*found, *(_deviation(f"{name} less {REFERENCE}", apart[name]) for name in apart)]


def _deviation(name: str, searches: Sequence[Chosen]) -> dict[str, Any]:
    """Standard deviation between searches, beside the one that they predict."""
    observed = float(np.std([each.top1.mean() for each in searches], ddof=1))
    variances = [each.missed.var() + each.top1.var(ddof=1) / len(each.top1) for each in searches]
    predicted = float(np.sqrt(np.mean(variances)))
    name = f"{name}: standard deviation between {len(searches)} searches / predicted"
    return row(name, observed, predicted, "points", observed / predicted, "shown", True)
