"""Tests whether the staleness of a real run could be that of a predicted one."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class ComparedStaleness(NamedTuple):
    """Staleness of a run beside that of predicted ones.

    `distance`: total variation between its distribution and the pooled predicted one, 0 to 1. `p`:
    share of runs, itself included, that are as far from all together.
    """

    distance: float
    p: float


def compared_staleness(
    pushes: Counter[int], predicted: Sequence[Counter[int]]
) -> ComparedStaleness:
    """Compare a run with predicted runs of other seeds; each has pushes by their staleness.

    If it is one more draw from the prediction, each rank of its distance from the pool of all runs
    is equally probable: p <= 5 % in at most 5 % of such runs (Barnard 1963, J. R. Stat. Soc. B 25;
    Hope 1968, J. R. Stat. Soc. B 30).
    """
    length = 1 + max(max(each) for each in (pushes, *predicted))
    shares = np.array([_shares(each, length) for each in (pushes, *predicted)])
    distances = _distance(shares, shares.mean(axis=0))
    as_far = distances >= distances[0] * (1 - 1e-9)
    own = float(_distance(shares[:1], shares[1:].mean(axis=0))[0])
    return ComparedStaleness(own, float(as_far.mean()))


def _shares(pushes: Counter[int], length: int) -> np.ndarray:
    counts = np.bincount(list(pushes), weights=list(pushes.values()), minlength=length)
    return counts / counts.sum()


def _distance(shares: np.ndarray, of: np.ndarray) -> np.ndarray:
    """Return the total variation of each row's distribution from another."""
    return np.abs(shares - of).sum(axis=1) / 2
