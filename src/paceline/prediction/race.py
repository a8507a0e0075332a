"""Chooses batch size and plan: times whole training steps of the candidates predicted as fastest.

A plan says how to compute each block of the network. A plan's prediction adds up the times of
blocks that were measured one by one, with their code and data in caches. In a whole step on a CPU a
small recomputed block took 0.3 to 0.8 ms more. So only whole steps can rank plans whose predictions
are within a few percent of each other.

Plans are measured by turns, and the slower half is dropped repeatedly (sequential halving: Karnin,
Koren and Somekh 2013, "Almost optimal exploration in multi-armed bandits").
"""

import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import quantile_test

from paceline.cluster.launcher import call_in_processes
from paceline.prediction.blocks import ALTERNATIVES, Block, Choice, applied, find_blocks
from paceline.prediction.measure_blocks import STEP_SECONDS, built_step, timed
from paceline.prediction.plan import Planned, best
from paceline.prediction.programme import Plan, Programme
from paceline.prediction.step_memory import Step
from paceline.record.point import Point

_MOST_COMBINATIONS = 32  # up to this number, all combinations of alternatives are candidates
_NUM_FASTEST = 12  # else this many of the fastest, and those with one alternative throughout
_NEAR = 1.1  # times the lowest predicted cost; predictions of whole steps were up to 4 % off
_SEED = 0  # of the order of turns
_CONFIDENCE = 0.95

Turn = Callable[[], float]  # takes a measurement and returns its seconds


class Difference(NamedTuple):
    """Relative difference in time of another plan from a first one.

    `share`: median over rounds. `low`, `high`: its 95 % interval by the sign test, None for fewer
    than the six rounds that the test needs.
    """

    share: float
    low: float | None
    high: float | None

    @property
    def faster(self) -> bool:
        """True if the other plan is significantly faster than the first one."""
        return self.high is not None and self.high < 0

    @property
    def significant(self) -> bool:
        return self.faster or (self.low is not None and self.low > 0)

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{100 * self.share:+.2f} % (too few rounds for an interval)"
        return f"{100 * self.share:+.2f} % ({100 * self.low:+.2f} to {100 * self.high:+.2f} %)"


@dataclass(frozen=True)
class Compared:
    """Plan for one batch size, a candidate. `seconds`: of a whole step in each round."""

    planned: Planned
    plan: Plan
    seconds: Sequence[float] = ()

    @property
    def predicted(self) -> float:
        """Predicted seconds for an image."""
        return self.planned.cost(self.plan.seconds)

    @property
    def step_seconds(self) -> float:
        return median(self.seconds)

    @property
    def cost(self) -> float:
        return self.planned.cost(self.step_seconds)

    def to(self, other: "Compared") -> Difference:
        """Return how much more time `other` takes for an image than this plan."""
        costs = [[each.planned.cost(s) for s in each.seconds] for each in (self, other)]
        return difference(*costs)


def compare(
    points: Sequence[Point], planned: Sequence[Planned], memory: float, rounds: int, seconds: float
) -> list[Compared]:
    """Measure the shortlist of `planned`, which has an item per point; sort it by `ordered`."""
    candidates = shortlist(planned, memory)
    by_size = {point.batch_size: point for point in points}
    steps = [
        (by_size[each.planned.batch_size], choice_of(each.planned.measured.programme, each.plan))
        for each in candidates
    ]
    weights = [each.planned.cost(1) for each in candidates]
    arguments = weights, rounds, seconds, Random(_SEED)
    (taken,) = call_in_processes(on_steps, race, steps, *arguments)
    return ordered(candidates, taken)


def shortlist(planned: Sequence[Planned], memory: float) -> list[Compared]:
    """Return the feasible plans whose predicted cost is at most 10 % above the lowest one."""
    limit = _NEAR * best(planned).predicted
    found = [
        Compared(each, plan)
        for each in planned
        if each.predicted <= limit
        for plan in feasible_plans(each.measured.programme, memory)
    ]
    near = [each for each in found if each.predicted <= limit]
    return sorted(near, key=lambda each: each.predicted)


def ordered(candidates: Sequence[Compared], seconds: Sequence[Sequence[float]]) -> list[Compared]:
    """Return the candidates with their `seconds`: the choice, then the runner-up, then the others.

    Those with more rounds come first, since they stayed in the race for longer; of those with
    equally many rounds, the one with the lowest median cost.
    """
    pairs = zip(candidates, seconds, strict=True)
    compared = [replace(each, seconds=taken) for each, taken in pairs]
    return sorted(compared, key=lambda each: (-len(each.seconds), each.cost))


def feasible_plans(programme: Programme, memory: float) -> list[Plan]:
    """Return the plans within `memory` [bytes] that are to be measured, the fastest first.

    These are all combinations of the blocks' alternatives, if there are at most 32. Otherwise these
    are the twelve fastest plans, and for each alternative the plan that uses it wherever possible.
    """
    options = [block.options for block in programme.blocks]
    if math.prod(map(len, options)) <= _MOST_COMBINATIONS:
        plans = [programme.plan(list(each)) for each in itertools.product(*options)]
    else:
        plans = programme.fastest(memory, _NUM_FASTEST)
        for alternative in ALTERNATIVES:
            plan = programme.plan([block.option(alternative) for block in programme.blocks])
            if plan not in plans:
                plans.append(plan)
    within = [plan for plan in plans if plan.fullest.bytes <= memory]
    return sorted(within, key=lambda plan: plan.seconds)


def choice_of(programme: Programme, plan: Plan) -> Choice:
    """Return the plan's alternatives by the names of blocks, for `applied`."""
    pairs = zip(programme.blocks, plan.options, strict=True)
    return {block.name: option.alternative for block, option in pairs}


def on_steps(
    measure: Callable[..., list[list[float]]],
    steps: Sequence[tuple[Point, Choice]],
    *arguments: Any,
) -> list[list[float]]:
    """Return what `race` or `by_turns` measures of steps; call it in a process of its own."""
    built = {point.batch_size: built_step(point) for point, _ in steps}
    blocks = {size: find_blocks(step.module) for size, step in built.items()}
    takes = [partial(_take, built[p.batch_size], blocks[p.batch_size], each) for p, each in steps]
    turns = [partial(timed, take, STEP_SECONDS) for take in takes]
    for turn in turns:
        turn()  # builds kernels and asks for memory, which later ones need not
    return measure(turns, *arguments)


def difference(first: Sequence[float], other: Sequence[float]) -> Difference:
    """Return by what share `other` takes longer than `first`, in the rounds that both have."""
    num_rounds = min(len(first), len(other))
    shares = np.array(other[:num_rounds]) / np.array(first[:num_rounds]) - 1
    low, high = quantile_test(shares, q=0, p=0.5).confidence_interval(_CONFIDENCE)
    interval = (float(low), float(high)) if np.isfinite([low, high]).all() else (None, None)
    return Difference(float(np.median(shares)), *interval)


def race(
    turns: Sequence[Turn],
    weights: Sequence[float],
    rounds: int,
    seconds: float,
    random: Random,
    clock: Callable[[], float] = time.perf_counter,
) -> list[list[float]]:
    """Measure in phases, after each of which the costlier half of the turns is dropped.

    The race ends with a phase of at most two turns. A turn's cost is its weight times its median
    seconds. Every phase has an equal share of `seconds`, and at least `rounds` rounds. Returns the
    seconds of each turn by round; a dropped turn has fewer rounds.
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
    """Return the seconds of each turn by round, for at least `rounds` rounds and `seconds` seconds.

    Every round has a random order, so that no turn always follows the same other one.
    """
    found: list[list[float]] = [[] for _ in turns]
    order, start = list(range(len(turns))), clock()
    while len(found[0]) < rounds or clock() - start < seconds:
        random.shuffle(order)
        for index in order:
            found[index].append(turns[index]())
    return found


def _take(step: Step, blocks: Sequence[Block], choice: Choice) -> None:
    with applied(blocks, choice):
        step.take()
