"""Evidence of studies on accuracy, as a plan needs it: the change of top-1 against one worker.

A study of a small network says something about a large one only if both are compared by a measure
that has no unit of either. Two are used, after which effects of scale are ordered in the studies:

- rounds of an epoch: the images of the training set, divided by the images that all workers
  together process at the same weights (workers * images of each). If all workers are synchronous,
  these are the updates of an epoch.
- staleness: updates by others between a worker's reading of weights and its update.

The studies varied both together, so that neither is known alone: of the two changes that they give,
`Evidence.change` returns the worse.
"""

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from importlib.resources import files
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np

from paceline.grouped import grouped

FILE = "evidence.csv"  # beside this module; `paceline report` writes it from the committed studies
# Intervals of predicted images/s are the prediction divided and multiplied by FACTOR: by which the
# model was off for 90 % of the numbers of papers/published.csv that it was not fitted to; a test
# derives it anew. STEP_FACTOR is the same for a step whose time follows from FLOPs and an
# assumed utilisation: within it are the images/s of 90 % of the kinds of networks in
# papers/step_times.csv, each predicted by shares that were fitted to all other kinds;
# benchmarks/step_times.py derives it anew.
FACTOR, STEP_FACTOR = 1.28, 1.53
_EDGE = 0.05  # relative; so far beyond what was studied is alike
COMPARABLE = 10  # times the weights of the network that was studied, or a tenth of them
TUNED, RULES = "tuned", ("linear", "square_root")  # rates of studies; rules as training.lr_rule
# Longest exchange that was studied [steps of computing]: over the slowest links of the study grid
LONGEST_EXCHANGE = 3.7


class Change(NamedTuple):
    """Change of top-1 against one worker, as a share, with its 95 % interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Observed:
    """Change of top-1 that a study found for a scheme and a number of workers, as shares.

    `runs_digest`: SHA-256 digest of the study's runs.csv. `images`: training images of an
    epoch. `settings`: those of the scheme that the study chose, as on the command line.
    `rate`: "tuned", or the rule of the learning rate. `staleness`: mean over pushes [updates].
    """

    study: str
    runs_digest: str
    data: str
    model: str
    num_weights: int
    images: int
    epochs: float
    batch_size: int
    scheme: str
    settings: str
    rate: str
    workers: int
    staleness: float
    seeds: int
    diverged: int
    mean: float
    low: float
    high: float

    @property
    def rounds(self) -> float:
        """Rounds of an epoch."""
        return self.images / (self.workers * self.batch_size)

    @property
    def training(self) -> tuple[str, str, int, float, int]:
        """Training whose changes are comparable: only those where this is equal are."""
        return self.data, self.model, self.num_weights, self.epochs, self.batch_size


@dataclass(frozen=True)
class Evidence:
    """Observations of one network, data set and budget; at least one, of several workers."""

    observed: Sequence[Observed]

    @property
    def any(self) -> Observed:
        """An observation, for what all have in common."""
        return self.observed[0]

    @cached_property
    def schemes(self) -> dict[str, list[str]]:
        """Names of the schemes that were searched and share updates, with all settings of each."""
        searched = [r for r in self.observed if r.rate == TUNED and r.scheme != "independent"]
        rows = grouped(searched, lambda row: row.scheme)
        return {name: list(dict.fromkeys(row.settings for row in of)) for name, of in rows.items()}

    def settings(self, scheme: str, rounds: float) -> str:
        """Return the settings with which a scheme was studied at the nearest number of rounds."""
        rows = self._rows(scheme, TUNED)
        near = min(rows, key=lambda row: abs(math.log(row.rounds / rounds)), default=None)
        return near.settings if near else ""

    def comparable(self, scheme: str, num_weights: int, workers: int) -> bool:
        """Return True if a scheme was studied with as many workers, and with a network that has
        num_weights up to a factor of COMPARABLE.
        """
        far = max(num_weights / self.any.num_weights, self.any.num_weights / num_weights)
        most = max((row.workers for row in self._rows(scheme, TUNED)), default=0)
        return far <= COMPARABLE and workers <= most

    def staleness(self, scheme: str, workers: int) -> float:
        """Return the mean staleness to expect, which grows as the number of other workers does.

        If each worker has one gradient under way, it is their number, whatever the times are.
        """
        rows = [row for row in self._rows(scheme, TUNED) if not row.diverged]
        if not rows:
            return 0.0
        shares = [row.staleness / (row.workers - 1) for row in rows]
        return (workers - 1) * float(np.interp(workers, [row.workers for row in rows], shares))

    def change(
        self, scheme: str, rounds: float, staleness: float = 0.0, rate: str = TUNED
    ) -> Change | None:
        """Return the change of top-1 with so many rounds of an epoch; None if it was not studied.

        Between numbers of workers that were studied, the change is interpolated linearly in the
        logarithms of rounds, and of staleness + 1. More rounds, or less staleness, than with the
        fewest workers are taken to change as much as these. Fewer rounds, or more staleness, than
        were studied are not known, neither is what follows workers at which a run diverged.
        """
        rows = list(takewhile(lambda row: not row.diverged, self._rows(scheme, rate)))
        most = max((row.staleness for row in rows), default=0.0)
        if not rows or rounds < (1 - _EDGE) * rows[-1].rounds or staleness > (1 + _EDGE) * most:
            return None
        found = [_at(rows, [-math.log(row.rounds) for row in rows], -math.log(rounds))]
        if staleness:
            stale = [math.log1p(row.staleness) for row in rows]
            found.append(_at(rows, stale, math.log1p(staleness)))
        return min(found)

    def _rows(self, scheme: str, rate: str) -> list[Observed]:
        """Return the observations of a scheme with such a rate, by their number of workers."""
        rows = [row for row in self.observed if (row.scheme, row.rate) == (scheme, rate)]
        return sorted(rows, key=lambda row: row.workers)


def _at(rows: Sequence[Observed], places: Sequence[float], place: float) -> Change:
    values = ([getattr(row, name) for row in rows] for name in Change._fields)
    return Change(*(float(np.interp(place, places, each)) for each in values))


def evidence_for(rows: Iterable[Observed], model: str, data: str) -> Evidence | None:
    """Return the observations of the largest training of a network on a data set.

    If there are none of this network and data set, return those of the largest training of all.
    That training is the largest which has the most observations. None without observations.
    """
    groups = grouped(rows, lambda row: row.training)
    own = [group for group in groups.values() if (group[0].model, group[0].data) == (model, data)]
    largest = max(own or groups.values(), key=len, default=None)
    return None if largest is None else Evidence(largest)


def read_evidence() -> list[Observed]:
    """Return the observations of the file in the package."""
    text = (files("paceline.prediction") / FILE).read_text()
    kinds: dict[str, Any] = {field.name: field.type for field in fields(Observed)}
    return [
        Observed(
            **{n: kind(row[n] if kind is str else row[n] or "nan") for n, kind in kinds.items()}
        )
        for row in csv.DictReader(text.splitlines())
    ]
