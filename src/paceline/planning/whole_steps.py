"""Chooses batch size and plan by whole steps, among the few that are the fastest by prediction.

A prediction adds up blocks that were measured one by one, with their code and data in caches: in a
whole step on a CPU a small recomputed block took 0.3 to 0.8 ms more. Plans that are predicted to be
within a few percent of each other can only be ranked by whole steps, if at all. `verify` measures
the choice again: in the race it was the fastest of many, to which luck has contributed.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from statistics import median
from typing import NamedTuple

from paceline.cluster.cluster import device
from paceline.planning.alternative import ALTERNATIVES, Choice, applied
from paceline.planning.blocks import Block, find_blocks
from paceline.planning.measure_blocks import STEP_SECONDS, built_step
from paceline.planning.measured_peak import Peak, measure_peak
from paceline.planning.plan import Planned, best, comparable, in_process
from paceline.planning.programme import Plan, Programme
from paceline.planning.race import Difference, Turn, by_turns, difference, race, timed
from paceline.planning.step_memory import Step
from paceline.record.point import Point

_MOST_COMBINATIONS = 32  # up to which all of them are feasible plans
_NUM_FASTEST = 12  # else this many of the fastest, and those with one alternative throughout
_NEAR = 1.1  # of the fastest; predictions of whole steps were up to 4 % off
_NUM_VERIFIED = 16  # more than a shortlist has of one batch size
_NUM_PEAKS = 3
_RACE_SEED, _VERIFY_SEED = 0, 1  # of the order of turns


class Candidate(NamedTuple):
    """Plan of a batch size that may be the fastest."""

    planned: Planned
    plan: Plan

    @property
    def predicted(self) -> float:
        return self.planned.cost(self.plan.seconds)


@dataclass(frozen=True)
class Compared:
    """Candidate with the seconds of its whole steps, by round."""

    planned: Planned
    plan: Plan
    seconds: Sequence[float]

    @property
    def step_seconds(self) -> float:
        return median(self.seconds)

    @property
    def cost(self) -> float:
        return self.planned.cost(self.step_seconds)

    def to(self, other: "Compared") -> Difference:
        """Return how much more time `other` takes to the target, or for an image."""
        costs = [[each.planned.cost(s) for s in each.seconds] for each in (self, other)]
        return difference(*costs)


class WholeStep(NamedTuple):
    """Step of a point, whose blocks are carried out by a choice. `weight`: of its seconds."""

    point: Point
    choice: Choice
    weight: float


@dataclass(frozen=True)
class VerifiedPlan:
    """A plan, the seconds of its whole steps by round, and the `peak` of the first few plans."""

    plan: Plan
    seconds: Sequence[float]
    peak: Peak | None


def compare(
    points: Sequence[Point], planned: Sequence[Planned], memory: float, rounds: int, seconds: float
) -> list[Compared]:
    """Measure the shortlist of `planned`, one of each point; return it as `ordered` does."""
    candidates = shortlist(planned, memory)
    by_size = {point.batch_size: point for point in points}
    steps = [
        WholeStep(by_size[each.batch_size], choice_of(each.measured.programme, plan), each.cost(1))
        for each, plan in candidates
    ]
    return ordered(candidates, in_process(race_steps, steps, rounds, seconds))


def shortlist(planned: Sequence[Planned], memory: float) -> list[Candidate]:
    """Return the feasible plans of all batch sizes that are near the fastest by prediction."""
    fastest = best(planned)
    limit = _NEAR * fastest.cost(fastest.plans[0].seconds)
    found = [
        Candidate(each, plan)
        for each in comparable(planned)
        if each.cost(each.plans[0].seconds) <= limit
        for plan in feasible_plans(each.measured.programme, memory)
    ]
    near = [each for each in found if each.predicted <= limit]
    return sorted(near, key=lambda each: each.predicted)


def ordered(candidates: Sequence[Candidate], seconds: Sequence[Sequence[float]]) -> list[Compared]:
    """Return the choice, the runner-up, and the others in the order in which the race left them.

    The choice has the smallest median of those with the most rounds.
    """
    compared = [Compared(*each, taken) for each, taken in zip(candidates, seconds, strict=True)]
    return sorted(compared, key=lambda each: (-len(each.seconds), each.cost))


def feasible_plans(
    programme: Programme, memory: float, num_fastest: int = _NUM_FASTEST
) -> list[Plan]:
    """Return the plans to measure within `memory` [bytes], the fastest first.

    If there are many combinations, those with the same alternative for all blocks that have it are
    among them.
    """
    options = [block.options for block in programme.blocks]
    if math.prod(map(len, options)) <= _MOST_COMBINATIONS:
        plans = [programme.plan(list(each)) for each in itertools.product(*options)]
    else:
        plans = programme.fastest(memory, num_fastest)
        for alternative in ALTERNATIVES:
            plan = programme.plan([b.option(alternative) or b.plain for b in programme.blocks])
            if plan not in plans:
                plans.append(plan)
    within = [plan for plan in plans if plan.fullest.bytes <= memory]
    return sorted(within, key=lambda plan: plan.seconds)


def choice_of(programme: Programme, plan: Plan) -> Choice:
    """Return the plan's alternatives by the names of blocks, for `applied`."""
    pairs = zip(programme.blocks, plan.options, strict=True)
    return {block.name: option.alternative for block, option in pairs}


def verify(
    point: Point, chosen: Compared, memory: float, rounds: int, seconds: float
) -> list[VerifiedPlan]:
    """Measure feasible plans of the chosen batch size, the choice first, then by prediction."""
    programme = chosen.planned.measured.programme
    others = feasible_plans(programme, memory, _NUM_VERIFIED)
    plans = [chosen.plan, *(plan for plan in others if plan != chosen.plan)]
    choices = [choice_of(programme, plan) for plan in plans]
    steps = [WholeStep(point, choice, 1.0) for choice in choices]
    taken = in_process(repeat_steps, steps, rounds, seconds)
    peaks = [in_process(plan_peak, point, choice) for choice in choices[:_NUM_PEAKS]]
    padded = [*peaks, *([None] * (len(plans) - len(peaks)))]
    return [VerifiedPlan(*each) for each in zip(plans, taken, padded, strict=True)]


def rank(verified: Sequence[VerifiedPlan]) -> int:
    """Return the place of the first plan by measured median, 1 for the fastest."""
    medians = [median(each.seconds) for each in verified]
    return 1 + sum(seconds < medians[0] for seconds in medians)


def differences(verified: Sequence[VerifiedPlan]) -> list[Difference]:
    """Return how much more time each plan takes than the first, by rounds."""
    return [difference(verified[0].seconds, each.seconds) for each in verified]


def race_steps(steps: Sequence[WholeStep], rounds: int, seconds: float) -> list[list[float]]:
    """Return what `race` returns; call it in a process of its own."""
    weights = [each.weight for each in steps]
    return race(_turns(steps), weights, rounds, seconds, Random(_RACE_SEED))


def repeat_steps(steps: Sequence[WholeStep], rounds: int, seconds: float) -> list[list[float]]:
    """Return what `by_turns` returns; call it in a process of its own."""
    return by_turns(_turns(steps), rounds, seconds, Random(_VERIFY_SEED))


def plan_peak(point: Point, choice: Choice) -> Peak:
    """Return the peak of a step by a choice; call it in a process of its own.

    With an empty choice all blocks are carried out unchanged.
    """

    def build() -> Callable[[], None]:
        step = built_step(point)
        return _by_choice(step, find_blocks(step.module), choice)

    return measure_peak(build, device(point.device, 0))


def _turns(steps: Sequence[WholeStep]) -> list[Turn]:
    built = {each.point.batch_size: built_step(each.point) for each in steps}
    blocks = {size: find_blocks(step.module) for size, step in built.items()}
    turns = list[Turn]()
    for point, choice, _ in steps:
        take = _by_choice(built[point.batch_size], blocks[point.batch_size], choice)
        turns.append(lambda take=take: timed(take, STEP_SECONDS))
    for turn in turns:
        turn()  # builds kernels and asks for memory, which later ones need not
    return turns


def _by_choice(step: Step, blocks: Sequence[Block], choice: Choice) -> Callable[[], None]:
    def take() -> None:
        with applied(blocks, choice):
            step.take()

    return take
