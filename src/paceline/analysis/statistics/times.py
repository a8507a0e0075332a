"""Computes from evaluations when runs reach a target, and means and ratios of these times.

The restricted mean of times is the mean of the smaller of each time and a stated horizon. This
equals the area up to the horizon under the curve of Kaplan and Meier (1958, JASA 53). A failure
counts as the horizon, since a mean over only those runs that reached the target would favour
schemes that lose slow runs.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtr, stdtrit
from scipy.stats import CensoredData, ecdf

from paceline.analysis.statistics.means import LEVEL, POSITIVE, Array, Estimate, Pooled, paired

IN_A_ROW = 3  # evaluations at or above the target, since one alone may be luck


class Crossing(NamedTuple):
    """Interval in which a run reached the target: after `low`, and at `high` or before.

    For a run that ended without reaching the target, `low` is its end and `high` is infinity. NEVER
    stands for a run that diverged, and so would not have reached the target later.
    """

    low: float
    high: float

    @property
    def reached(self) -> bool:
        """True if the run reached the target."""
        return math.isfinite(self.high)

    @property
    def middle(self) -> float:
        """Middle of the interval; for a run that did not reach the target, its end."""
        return (self.low + self.high) / 2 if self.reached else self.low


NEVER = Crossing(math.inf, math.inf)


def crossing(times: ArrayLike, values: ArrayLike, target: float) -> Crossing:
    """Return when one run reached the target, by its `values` at rising `times` [evaluations].

    The target counts as reached at the first of IN_A_ROW consecutive evaluations with a value of at
    least `target`; at the end of the run, fewer are enough. Larger values are better. Times are
    above 0.
    """
    times, above = np.asarray(times, float), np.asarray(values, float) >= target
    for first in np.flatnonzero(above):
        if above[first : first + IN_A_ROW].all():
            return Crossing(float(times[first - 1]) if first else 0.0, float(times[first]))
    return Crossing(float(times[-1]) if len(times) else 0.0, math.inf)


class RestrictedMean(NamedTuple):
    """Mean of min(time, horizon) over `n` runs, of which `reached` reached the target in time.

    `variance` is the variance of this mean; it is NaN for a single run, or if no run reached the
    target before the horizon. `pseudo` [n] are the pseudo-values of runs whose `seeds` [n] are
    known, and `width` the mean time between the evaluations before and after the target.
    """

    mean: float
    variance: float
    n: int
    reached: int
    horizon: float
    seeds: tuple[int, ...] = ()
    pseudo: tuple[float, ...] = ()
    width: float = 0.0

    @property
    def lost(self) -> int:
        """Number of runs that did not reach the target."""
        return self.n - self.reached

    def interval(self) -> Estimate:
        """Return the mean with its 95 % interval, by Student's t for the logarithm of the mean.

        No end is above the horizon. The ends are NaN if the variance is NaN.
        """
        critical = stdtrit(max(self.n - 1, 1), (1 + LEVEL) / 2)
        factor = math.exp(critical * math.sqrt(self.variance) / self.mean)
        high = min(self.mean * factor, self.horizon) if factor == factor else math.nan
        return Estimate(self.mean, self.mean / factor, high)


def restricted_mean(
    crossings: Sequence[Crossing], horizon: float, seeds: Sequence[int] = ()
) -> RestrictedMean:
    """Return the restricted mean of crossings, each of which counts by the middle of its interval.

    `seeds` of the runs, if known, allow to pair them with other runs.

    A run that ended without a crossing is censored at its end; NEVER counts as the horizon. The
    standard error is computed from jackknifed pseudo-values (Andersen, Klein, Rosthoej 2003,
    Biometrika 90), but is at least that of a time which may lie anywhere between two evaluations.
    """
    times = np.array([min(each.middle, horizon) for each in crossings])
    crossed = np.array([each.reached and each.middle < horizon for each in crossings], bool)
    n, reached = len(times), int(crossed.sum())
    variance, pseudo, width = math.nan, times, 0.0
    if not n:
        return RestrictedMean(math.nan, math.nan, 0, 0, horizon)
    if n > 1 and reached:
        pseudo = pseudo_values(times, crossed, horizon)
        widths = [each.high - each.low for each in crossings if each.reached]
        width = float(np.mean(widths))
        variance = max(float(pseudo.var(ddof=1) / n), width**2 / 12)
    mean = area(times, crossed, horizon)
    known = tuple(pseudo.tolist()) if len(seeds) else ()
    return RestrictedMean(mean, variance, n, reached, horizon, tuple(seeds), known, width)


def pseudo_values(times: Array, crossed: Array, horizon: float) -> Array:
    """Return for each run: n times the area of all n runs, less n - 1 times that of the others."""
    n, runs = len(times), np.arange(len(times))
    left_out = [area(times[runs != run], crossed[runs != run], horizon) for run in runs]
    return n * area(times, crossed, horizon) - (n - 1) * np.array(left_out)


def area(times: Array, crossed: Array, horizon: float) -> float:
    """Return the area from 0 to the horizon under the share of runs that have not crossed yet.

    Each of `times` is at most the horizon: the time of the crossing where `crossed` is True, else
    the time until which the run was observed. After the last known time, the share stays constant.
    """
    if (crossed | (times >= horizon)).all():
        return float(times.mean())
    if not crossed.any():
        return horizon
    left = ecdf(CensoredData(uncensored=times[crossed], right=times[~crossed])).sf
    steps = np.concatenate([[0.0], left.quantiles, [horizon]])
    return float(np.diff(steps) @ np.concatenate([[1.0], left.probabilities]))


def ratio_of_means(one: RestrictedMean, other: RestrictedMean, level: float = LEVEL) -> Estimate:
    """Return the ratio of two restricted means with the same horizon.

    Its interval is by Student's t of its logarithm, with the degrees of freedom of Welch and
    Satterthwaite. Runs are not paired, since few seeds tell less by pairs; as runs with the same
    seed vary alike, this is conservative. The ends are NaN if a variance is NaN, as where no run of
    a group reached the target.
    """
    ratio = one.mean / other.mean
    error, degrees = _error_of_ratio(one, other)
    factor = math.exp(stdtrit(degrees, (1 + level) / 2) * error)
    return Estimate(ratio, ratio / factor, ratio * factor)


def p_value(one: RestrictedMean, other: RestrictedMean) -> float:
    """Return the two-sided p-value of the hypothesis that the ratio of two restricted means with
    the same horizon is 1; NaN for NaN variances.
    """
    error, degrees = _error_of_ratio(one, other)
    return float(2 * stdtr(degrees, -abs(math.log(one.mean / other.mean)) / error))


def _error_of_ratio(one: RestrictedMean, other: RestrictedMean) -> tuple[float, float]:
    """Return the standard error of the logarithm of a ratio, and its degrees of freedom."""
    errors = np.array([side.variance / side.mean**2 for side in (one, other)])
    freedom = np.array([max(side.n - 1, 1) for side in (one, other)])
    total = errors.sum()
    if not total > 0:
        return math.nan, 1.0
    return math.sqrt(total), float(total**2 / (errors**2 / freedom).sum())


def family_of(groups: Sequence[RestrictedMean]) -> Pooled:
    """Return groups as one family, with logarithms of means and one relative variance of times.

    Runs with the same seed are paired. This assumes that all runs of the groups reached the target.
    Groups of one run use the variance of the others.
    """
    columns = sorted({seed for group in groups for seed in group.seeds})
    table = np.full((len(groups), len(columns)), math.nan)
    for row, group in zip(table, groups, strict=True):
        places = [columns.index(seed) for seed in group.seeds]
        row[places] = math.log(group.mean) + np.array(group.pseudo) / group.mean - 1
    found = paired(table) if columns else None
    degrees = sum(group.n - 1 for group in groups)
    if found is not None and found.covariance is not None:
        least = np.mean([group.n * (group.width / group.mean) ** 2 for group in groups]) / 12
        return replace(found, variance=np.maximum(found.variance, least), space=POSITIVE)
    relative = [
        (group.n - 1) * group.n * group.variance / group.mean**2 for group in groups if group.n > 1
    ]
    return Pooled(
        means=np.log([group.mean for group in groups]),
        sizes=np.array([group.n for group in groups]),
        variance=np.asarray(sum(relative) / degrees if degrees else math.nan),
        degrees=degrees,
        space=POSITIVE,
    )
