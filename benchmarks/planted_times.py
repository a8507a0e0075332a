"""Worlds of times to a target: evaluated now and then, cut off, or never."""

from collections.abc import Callable

import numpy as np
from numpy.random import Generator
from scipy.stats import lognorm

from benchmarks.planted_world import Aim, Found, found
from paceline.analysis.statistics.means import POSITIVE, intervals_of_means, pooled
from paceline.analysis.statistics.multiple_comparisons import against_reference
from paceline.analysis.statistics.times import (
    NEVER,
    Crossing,
    crossing,
    ratio_of_means,
    restricted_mean,
)

SPREAD = 0.15  # standard deviation of the logarithm of a time
MEDIAN, FASTER = 300.0, 200.0  # seconds
HORIZON = 1000.0


def two_groups(draws: int) -> list[Found]:
    rows, rng = [], np.random.default_rng(11)
    for n in (3, 8):
        times = [_times(rng, median, (draws, n)) for median in (MEDIAN, FASTER)]
        ratio = against_reference(pooled(times, POSITIVE), 1)
        hour = np.exp(0.5 * rng.standard_normal((draws, n)))
        ratios = (times[0] * hour) / (times[1] * hour)
        pairs = intervals_of_means(pooled([ratios], POSITIVE))
        covered = ratio.covers(1.5)
        rows += [
            found(f"ratio of skewed times of two schemes, n {n}", covered, Aim.COVERAGE),
            found(f"  paired, n {n}", pairs.covers(1.5)[..., 0], Aim.COVERAGE),
        ]
    return rows


def evaluated(draws: int) -> list[Found]:
    """The crossing is known to lie between two evaluations."""
    rows = []
    for n, spacing, aim in (
        (3, 20.0, Aim.COVERAGE),
        (8, 20.0, Aim.COVERAGE),
        (8, 90.0, Aim.AT_LEAST),
    ):
        means = [_restricted_truth(median, HORIZON) for median in (MEDIAN, FASTER)]

        def sample(rng, median, n=n, spacing=spacing):
            return [_crossed(time, spacing) for time in _times(rng, median, n)]

        text = f"speed-up, times of {MEDIAN:g} s evaluated every {spacing:g} s, n {n}"
        rows.append(_ratios(text, sample, HORIZON, means, draws, aim))
    return rows


def cut_off(draws: int) -> list[Found]:
    """A horizon that a fifth of the slower runs miss, or runs that end earlier."""
    rows, horizon = [], float(lognorm.ppf(0.8, SPREAD, scale=MEDIAN))
    means = [_restricted_truth(median, horizon) for median in (MEDIAN, FASTER)]
    for n in (8, 24):

        def missed(rng, median, n=n):
            return [_crossed(time, 5.0) for time in _times(rng, median, n)]

        text = f"speed-up, one in five beyond the horizon, n {n}"
        rows.append(_ratios(text, missed, horizon, means, draws, Aim.COVERAGE))

        def ended(rng, median, n=n):
            ends = rng.uniform(0.8, 3, n) * median
            return [_crossed(*run, end) for *run, end in _with_spacing(rng, median, ends)]

        text = f"speed-up, runs that end early, one in ten before it crosses, n {n}"
        rows.append(_ratios(text, ended, horizon, means, draws, Aim.COVERAGE))
    return rows


def failures(draws: int) -> list[Found]:
    """A limit: where failures are rare, few seeds may show none."""
    rows = []
    for n, rate in ((8, 0.1), (8, 0.4), (24, 0.4)):
        alive = [_restricted_truth(median, HORIZON) for median in (MEDIAN, FASTER)]
        means = [(1 - rate) * alive[0] + rate * HORIZON, alive[1]]

        def sample(rng, median, n=n, rate=rate):
            runs = [_crossed(time, 5.0) for time in _times(rng, median, n)]
            failed = rng.random(n) < (rate if median == MEDIAN else 0)
            return [NEVER if f else run for f, run in zip(failed, runs, strict=True)]

        text = f"speed-up, {rate:.0%} of the slower scheme's runs fail, n {n}"
        rows.append(_ratios(text, sample, HORIZON, means, draws, Aim.LIMIT))
    return rows


def _times(rng: Generator, median: float, size) -> np.ndarray:
    return median * np.exp(SPREAD * rng.standard_normal(size))


def _crossed(time: float, spacing: float, end: float = 2 * HORIZON) -> Crossing:
    """As the curve of a run tells that crosses at `time`."""
    times = np.arange(1, end / spacing + 1) * spacing
    return crossing(times, times >= time, 1.0)


def _with_spacing(rng: Generator, median: float, ends: np.ndarray):
    return [
        (time, 5.0, end) for time, end in zip(_times(rng, median, len(ends)), ends, strict=True)
    ]


def _restricted_truth(median: float, horizon: float) -> float:
    time = lognorm(SPREAD, scale=median)
    return float(time.expect(ub=horizon) + horizon * time.sf(horizon))


def _ratios(
    name: str, sample: Callable, horizon: float, means: list[float], draws: int, aim: Aim
) -> Found:
    rng, hits = np.random.default_rng(12), []
    for _ in range(draws):
        one, other = (restricted_mean(sample(rng, m), horizon) for m in (MEDIAN, FASTER))
        hits.append(ratio_of_means(one, other).covers(means[0] / means[1]))
    return found(name, np.array(hits), aim)


PROMISED = (two_groups, evaluated, cut_off)
SHOWN = (failures,)
