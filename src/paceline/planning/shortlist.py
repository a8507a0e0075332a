"""Chooses batch size and plan by whole steps, among the few that are the fastest by prediction.

A prediction adds up blocks that were measured alone, with their code and data in caches: in a whole
step on a CPU a small recomputed block took 0.3 to 0.8 ms more. Plans that it puts within a few
percent of each other are told apart by whole steps only, if at all.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from paceline.planning.alternative import ALTERNATIVES, Choice
from paceline.planning.difference import Difference, difference
from paceline.planning.plan import Planned, best, comparable, in_process
from paceline.planning.programme import Option, Plan, Programme
from paceline.planning.whole_steps import WholeStep, race_steps
from paceline.record.point import Point

_MOST_COMBINATIONS = 32  # up to which all of them are feasible plans
_NUM_FASTEST = 12  # else so many of the best, and those with one alternative throughout
_NEAR = 1.1  # of the fastest; predictions of whole steps were up to 4 % off
_SEED = 0  # of the order of turns


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
    return ordered(candidates, in_process(race_steps, steps, rounds, seconds, _SEED))


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
    """Return the plans to measure within `memory` [bytes], the fastest first."""
    options = [block.options for block in programme.blocks]
    if math.prod(map(len, options)) <= _MOST_COMBINATIONS:
        plans = [programme.plan(list(each)) for each in itertools.product(*options)]
    else:
        plans = programme.fastest(memory, num_fastest)
        for each in _uniform(programme):
            if (plan := programme.plan(each)) not in plans:
                plans.append(plan)
    within = [plan for plan in plans if plan.fullest.bytes <= memory]
    return sorted(within, key=lambda plan: plan.seconds)


def choice_of(programme: Programme, plan: Plan) -> Choice:
    """Return the plan's alternatives by the names of blocks, for `applied`."""
    pairs = zip(programme.blocks, plan.options, strict=True)
    return {block.name: option.alternative for block, option in pairs}


def _uniform(programme: Programme) -> list[list[Option]]:
    """Return one alternative for all blocks that have it, the others as they are, for each."""
    return [
        [block.option(alternative) or block.plain for block in programme.blocks]
        for alternative in ALTERNATIVES
    ]
