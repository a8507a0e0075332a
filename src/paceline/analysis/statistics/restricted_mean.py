"""Computes the mean time to a target, where some runs do not reach it.

The restricted mean is that of the smaller of the time and a horizon, which is stated: the area
under the curve of Kaplan and Meier (1958, JASA 53) up to there. A failure counts as the horizon,
since a mean of the runs that got there would praise schemes that lose their slow runs.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit
from scipy.stats import CensoredData, ecdf

from paceline.analysis.statistics.crossing import Crossing
from paceline.analysis.statistics.estimate import LEVEL, Array, Estimate


class RestrictedMean(NamedTuple):
    """Mean of min(time, horizon) of `n` runs, `reached` of which reached the target by then.

    `variance` is that of the mean, NaN if there is one run or none reached the target.
    """

    mean: float
    variance: float
    n: int
    reached: int
    horizon: float

    def interval(self, level: float = LEVEL) -> Estimate:
        """Return the mean with an interval above 0 and up to the horizon: Student's t of its log.

        The ends are NaN if the variance is.
        """
        critical = stdtrit(max(self.n - 1, 1), (1 + level) / 2)
        factor = math.exp(critical * math.sqrt(self.variance) / self.mean)
        high = min(self.mean * factor, self.horizon) if factor == factor else math.nan
        return Estimate(self.mean, self.mean / factor, high)


def restricted_mean(crossings: Sequence[Crossing], horizon: float) -> RestrictedMean:
    """Return the restricted mean of the times of crossings, taken at the middle of each.

    A run that ended without one counts as one that might have crossed later; NEVER does not. Its
    standard error is that of jackknifed pseudo-values (Andersen, Klein, Rosthoej 2003, Biometrika
    90), which without censoring are the times themselves. It is never less than that of a time
    anywhere between two evaluations, which all runs may share.
    """
    times = np.array([min(each.middle, horizon) for each in crossings])
    crossed = np.array([each.reached and each.middle < horizon for each in crossings], bool)
    n, reached = len(times), int(crossed.sum())
    variance = math.nan
    if not n:
        return RestrictedMean(math.nan, math.nan, 0, 0, horizon)
    if n > 1 and reached:
        own = pseudo_values(times, crossed, horizon).var(ddof=1) / n
        widths = [each.width for each in crossings if each.reached]
        variance = max(float(own), float(np.mean(widths)) ** 2 / 12)
    return RestrictedMean(area(times, crossed, horizon), variance, n, reached, horizon)


def pseudo_values(times: Array, crossed: Array, horizon: float) -> Array:
    """Return what each run adds to the area: n times that of all, less n - 1 times without it."""
    n, runs = len(times), np.arange(len(times))
    left_out = [area(times[runs != run], crossed[runs != run], horizon) for run in runs]
    return n * area(times, crossed, horizon) - (n - 1) * np.array(left_out)


def area(times: Array, crossed: Array, horizon: float) -> float:
    """Return the area under the share of runs that have not crossed, from 0 to the horizon.

    Times are up to the horizon. After the last known time the share stays as it is, as if those
    that were left never crossed.
    """
    if (crossed | (times >= horizon)).all():
        return float(times.mean())
    if not crossed.any():
        return horizon
    data = CensoredData(uncensored=times[crossed], right=times[~crossed])
    left = ecdf(data).sf
    steps = np.concatenate([[0.0], left.quantiles, [horizon]])
    return float(np.diff(steps) @ np.concatenate([[1.0], left.probabilities]))
