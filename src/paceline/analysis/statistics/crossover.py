"""Finds the number of workers above which one scheme stays ahead of another."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike

from paceline.analysis.statistics.means import LEVEL, PLAIN, Array, Space, pooled


class Crossover(NamedTuple):
    """Number of workers from which one scheme is ahead, with the interval from `low` to `high`.

    `workers` is 0 if the scheme is ahead at every number of workers in the study, and infinity if
    it is not ahead at the largest. `everywhere` and `nowhere` are the shares of bootstrap draws in
    which it is 0, or infinity.
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
) -> Crossover:
    """Return the number of workers from which the `challenger` is ahead of the `other` side.

    `workers` rise. Each side has observations [runs] for each number of workers, of which larger
    ones are better; for times, swap the sides. The advantage is a difference of means in `space`.
    It is assumed to rise with the number of workers, and to be linear in log(workers) between
    neighbouring numbers; where noise makes it fall, it is made constant. The bootstrap draws means
    from normal distributions with the pooled variance, which is drawn too; resampling 3 runs would
    lose a third of the variance. If no group has two runs, there is no interval.
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
    ends = np.quantile(found, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], method="inverted_cdf")
    everywhere, nowhere = np.mean(found == 0), np.mean(np.isinf(found))
    return Crossover(value, *map(float, (*ends, everywhere, nowhere)))


def overtakings(workers: Sequence[int], differences: Array) -> Array:
    """Return the number of workers at which each row of differences [rows, workers] crosses 0.

    Rows are first made to rise (see `isotonic`). The result is 0 for a row that is positive
    throughout, and infinity for a row whose last value is not positive.
    """
    logs, rising = np.log(workers), isotonic(differences)
    num_behind = (rising <= 0).sum(axis=1)
    rows, after = np.arange(len(rising)), np.clip(num_behind, 1, len(logs) - 1)
    behind, ahead = rising[rows, after - 1], rising[rows, after]
    inside = (num_behind > 0) & (num_behind < len(logs))
    way = -behind / np.where(inside, ahead - behind, 1)
    found = np.exp(logs[after - 1] + np.where(inside, way, 0) * (logs[after] - logs[after - 1]))
    return np.where(inside, found, np.where(num_behind > 0, np.inf, 0.0))


def isotonic(rows: Array) -> Array:
    """Return for each row the rising sequence that is closest to it by least squares.

    It is computed by the max-min formula for all rows at once: scipy.optimize.isotonic_regression
    takes a single row, and there are thousands.
    """
    num = rows.shape[1]
    sums = np.concatenate([np.zeros((len(rows), 1)), rows.cumsum(axis=1)], axis=1)
    means = np.full((num, num, len(rows)), np.nan)  # from the first index to the second
    for start, end in zip(*np.triu_indices(num), strict=True):
        means[start, end] = (sums[:, end + 1] - sums[:, start]) / (end + 1 - start)
    columns = [means[: i + 1, i:].min(axis=1).max(axis=0) for i in range(num)]
    return np.stack(columns, axis=1)
