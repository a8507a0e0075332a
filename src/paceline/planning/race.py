"""Finds the fastest of many things to measure, like the best arm of a bandit, in a limited time.

They are measured by turns, and the slower half is dropped again and again (Karnin, Koren and Somekh
2013, "Almost optimal exploration in multi-armed bandits", sequential halving), so that most of the
time goes to those that are hardest to distinguish.
"""

import math
import time
from collections.abc import Callable, Sequence
from random import Random
from statistics import median
from typing import NamedTuple

import numpy as np
import torch
from scipy.stats import quantile_test

_CONFIDENCE = 0.95
Turn = Callable[[], float]  # takes a measurement and returns its seconds


def race(
    turns: Sequence[Turn],
    weights: Sequence[float],
    rounds: int,
    seconds: float,
    random: Random,
    clock: Callable[[], float] = time.perf_counter,
) -> list[list[float]]:
    """Measure until two are left; return the seconds of each by round, the same first rounds.

    A turn's cost is its weight times its median. Every phase has an equal share of `seconds`, and
    at least `rounds` rounds.
    """
    found: list[list[float]] = [[] for _ in turns]
    left = list(range(len(turns)))
    share = seconds / max(1, math.ceil(math.log2(len(turns))))
    while True:
        taken = by_turns([turns[index] for index in left], rounds, share, random, clock)
        for index, more in zip(left, taken, strict=True):
            found[index] += more
        if len(left) <= 2:
            return found
        left.sort(key=lambda index: weights[index] * median(found[index]))
        left = left[: math.ceil(len(left) / 2)]


def by_turns(
    turns: Sequence[Turn],
    rounds: int,
    seconds: float,
    random: Random,
    clock: Callable[[], float] = time.perf_counter,
) -> list[list[float]]:
    """Return the seconds of each by round. There are `rounds`, and more until `seconds` are over.

    The order is drawn anew in every round, so that no turn always follows the same other one.
    """
    found: list[list[float]] = [[] for _ in turns]
    order, start = list(range(len(turns))), clock()
    while len(found[0]) < rounds or clock() - start < seconds:
        random.shuffle(order)
        for index in order:
            found[index].append(turns[index]())
    return found


def timed(
    work: Callable[[], None], least: float, before: Callable[[], None] = lambda: None
) -> float:
    """Return the seconds of one call, as the mean of as many as take `least` seconds in all.

    `before`: called before each of them, and not counted.
    """
    total, number = 0.0, 0
    while not number or total < least:
        before()
        start = time.perf_counter()
        work()
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        total += time.perf_counter() - start
        number += 1
    return total / number


class Difference(NamedTuple):
    """Relative difference in time: median over rounds, and its interval.

    `low`, `high`: of 95 %, by the sign test, which assumes no distribution; None for fewer than
    the six rounds that it needs.
    """

    share: float
    low: float | None
    high: float | None

    @property
    def faster(self) -> bool:
        """Say whether the other is significantly faster."""
        return self.high is not None and self.high < 0

    @property
    def significant(self) -> bool:
        return self.faster or (self.low is not None and self.low > 0)

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{100 * self.share:+.2f} % (too few rounds for an interval)"
        return f"{100 * self.share:+.2f} % ({100 * self.low:+.2f} to {100 * self.high:+.2f} %)"


def difference(first: Sequence[float], other: Sequence[float]) -> Difference:
    """Return by which share `other` takes longer, by the first rounds, which both have."""
    num_rounds = min(len(first), len(other))
    shares = np.array(other[:num_rounds]) / np.array(first[:num_rounds]) - 1
    low, high = quantile_test(shares, q=0, p=0.5).confidence_interval(_CONFIDENCE)
    interval = (float(low), float(high)) if np.isfinite([low, high]).all() else (None, None)
    return Difference(float(np.median(shares)), *interval)
