"""Finds the fastest of many things to measure, which is like their best arm, in a limited time.

They are measured by turns, and the slower half is left out again and again (Karnin, Koren and
Somekh 2013, "Almost optimal exploration in multi-armed bandits", sequential halving), so that most
of the time goes to those that are hard to tell apart.
"""

import math
import time
from collections.abc import Callable, Sequence
from random import Random
from statistics import median

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
    at least so many `rounds`.
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

    The order is another in every round, so that none has always the same one before it.
    """
    found: list[list[float]] = [[] for _ in turns]
    order, start = list(range(len(turns))), clock()
    while len(found[0]) < rounds or clock() - start < seconds:
        random.shuffle(order)
        for index in order:
            found[index].append(turns[index]())
    return found
