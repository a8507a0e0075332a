"""Measures whole steps by many plans, by turns, and the peak of each in a fresh process."""

import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import torch

from paceline.cluster.accelerator import device
from paceline.planning.alternative import ALTERNATIVES, Choice, applied
from paceline.planning.blocks import find_blocks
from paceline.planning.measure_blocks import built_step
from paceline.planning.measured_peak import Peak, measure_peak
from paceline.planning.plan import in_process
from paceline.planning.programme import Option, Plan, Programme
from paceline.record.point import Point

_MOST_COMBINATIONS = 32  # up to which every one is measured
_NUM_FASTEST = 8  # else so many of the best, and those with one alternative throughout
_NUM_PEAKS = 3


@dataclass(frozen=True)
class VerifiedPlan:
    """A plan and what a whole step by it took: `seconds` of each step; `peak` of the first few."""

    plan: Plan
    seconds: Sequence[float]
    peak: Peak | None


def verify(point: Point, programme: Programme, memory: float, rounds: int) -> list[VerifiedPlan]:
    """Measure feasible plans of a point, in the order of their predicted time."""
    plans = feasible_plans(programme, memory)
    choices = [choice_of(programme, plan) for plan in plans]
    seconds = in_process(measure_plans, point, choices, rounds)
    peaks = [measured_peak(point, choice) for choice in choices[:_NUM_PEAKS]]
    padded = [*peaks, *([None] * (len(plans) - len(peaks)))]
    return [VerifiedPlan(*each) for each in zip(plans, seconds, padded, strict=True)]


def measured_peak(point: Point, choice: Choice) -> Peak:
    """Measure the peak of a step by a choice in a fresh process; without one, as it is."""
    return in_process(measure_plan_peak, point, choice)


def feasible_plans(programme: Programme, memory: float) -> list[Plan]:
    """Return the plans to measure within `memory` [bytes], the fastest first."""
    options = [block.options for block in programme.blocks]
    if math.prod(map(len, options)) <= _MOST_COMBINATIONS:
        plans = [programme.plan(each) for each in itertools.product(*options)]
    else:
        uniform = [programme.plan(each) for each in _uniform(programme)]
        fastest = programme.fastest(memory, _NUM_FASTEST)
        plans = [*fastest, *(plan for plan in uniform if plan not in fastest)]
    within = [plan for plan in plans if plan.fullest.bytes <= memory]
    return sorted(within, key=lambda plan: plan.seconds)


def choice_of(programme: Programme, plan: Plan) -> Choice:
    """Return the plan's alternatives by the names of blocks, for `applied`."""
    pairs = zip(programme.blocks, plan.options, strict=True)
    return {block.name: option.alternative for block, option in pairs}


def rank(verified: Sequence[VerifiedPlan]) -> int:
    """Return the place of the first plan by measured median, 1 for the fastest."""
    medians = [median(each.seconds) for each in verified]
    return 1 + sum(seconds < medians[0] for seconds in medians)


def measure_plans(point: Point, choices: Sequence[Choice], rounds: int) -> list[list[float]]:
    """Return the seconds of whole steps by each choice; call it in a process of its own."""
    step = built_step(point)
    blocks = find_blocks(step.module)
    seconds: list[list[float]] = [[] for _ in choices]
    for _ in range(rounds + 1):  # the first is not counted
        for taken, choice in zip(seconds, choices, strict=True):
            with applied(blocks, choice):
                start = time.perf_counter()
                step.take()
                if point.device == "cuda":
                    torch.cuda.synchronize()
                taken.append(time.perf_counter() - start)
    return [taken[1:] for taken in seconds]


def measure_plan_peak(point: Point, choice: Choice) -> Peak:
    """Return the peak of a step by a choice; call it in a process of its own."""
    blocks = []

    def build():
        step = built_step(point)
        blocks.extend(find_blocks(step.module))

        def take() -> None:
            with applied(blocks, choice):
                step.take()

        return take

    return measure_peak(build, device(point.device, 0))


def _uniform(programme: Programme) -> list[list[Option]]:
    """Return one alternative for all blocks that have it, the others as they are, for each."""
    return [
        [block.option(alternative) or block.plain for block in programme.blocks]
        for alternative in ALTERNATIVES
    ]
