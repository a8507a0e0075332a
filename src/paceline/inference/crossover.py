"""Finds the number of workers from which one scheme stays ahead of another."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike

from paceline.inference.estimate import LEVEL, Array
from paceline.inference.pooled import pooled
from paceline.inference.space import PLAIN, Space


class Crossover(NamedTuple):
    """Number of workers, with its interval and the shares of bootstrap draws without one.

    0 stands for 'ahead at every scale of the study', infinity for 'not ahead at the largest';
    `everywhere` and `nowhere` are the shares of draws that say so.
    """

    workers: float
    low: float
    high: float
    everywhere: float
    nowhere: float


def crossover(
    workers: Sequence[int],
    challenger: Sequence[ArrayLike],
    other: Sequence[ArrayLike],
    rng: Generator,
    *,
    space: Space = PLAIN,
    draws: int = 2000,
    level: float = LEVEL,
) -> Crossover:
    """Return from where on the `challenger` is ahead, up to the largest of `workers`, which rise.

    Both have observations [runs] for each number of workers, better if larger; for times, swap the
    two. Between two numbers of workers the difference of the means in `space` is taken to be linear
    in log(workers). The bootstrap is parametric, with the pooled variance, itself drawn: to draw
    3 runs again and again would take a third of the variance away. Without two runs of anything
    there is none.
    """
    num = len(workers)
    family = pooled([*challenger, *other], space)
    means, variances = family.means, family.variance_of_means()
    difference = means[:num] - means[num:]
    (value,) = overtakings(workers, difference[None]).tolist()
    if not family.degrees:
        return Crossover(value, *[math.nan] * 4)
    error = np.sqrt(variances[:num] + variances[num:])
    scale = np.sqrt(family.degrees / rng.chisquare(family.degrees, (draws, 1)))
    drawn = difference + scale * error * rng.standard_normal((draws, num))
    found = overtakings(workers, drawn)
    ends = np.quantile(found, [(1 - level) / 2, (1 + level) / 2], method="inverted_cdf")
    everywhere, nowhere = np.mean(found == 0), np.mean(np.isinf(found))
    return Crossover(value, *map(float, (*ends, everywhere, nowhere)))


def overtakings(workers: Sequence[int], differences: Array) -> Array:
    """Return where each row of differences [rows, workers] last rises above 0.

    The result is 0 if it is above everywhere, and infinity if it is not above 0 at the end.
    """
    logs = np.log(workers)
    behind = differences <= 0
    last = differences.shape[1] - 1 - np.argmax(behind[:, ::-1], axis=1)
    rows, after = np.arange(len(differences)), np.minimum(last + 1, len(logs) - 1)
    before, ahead = differences[rows, last], differences[rows, after]
    rise = np.where(ahead > before, ahead - before, 1)
    found = np.exp(logs[last] + (logs[after] - logs[last]) * -before / rise)
    found = np.where(behind[:, -1], np.inf, found)
    return np.where(behind.any(axis=1), found, 0.0)
