"""Measures whole steps by many plans, and the peak of each in a fresh process.

The rounds are others than those by which the choice was made: there it was the fastest of many,
to which its luck has contributed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from paceline.cluster.accelerator import device
from paceline.planning.alternative import Choice, applied
from paceline.planning.blocks import find_blocks
from paceline.planning.difference import Difference, difference
from paceline.planning.measure_blocks import built_step
from paceline.planning.measured_peak import Peak, measure_peak
from paceline.planning.plan import in_process
from paceline.planning.programme import Plan
from paceline.planning.shortlist import Compared, choice_of, feasible_plans
from paceline.planning.whole_steps import WholeStep, repeat_steps
from paceline.record.point import Point

_NUM_FASTEST = 16  # more than a shortlist has of one batch size
_NUM_PEAKS = 3
_SEED = 1  # of the order of turns: another than a shortlist's


@dataclass(frozen=True)
class VerifiedPlan:
    """A plan and what a whole step by it took: `seconds` by round; `peak` of the first few."""

    plan: Plan
    seconds: Sequence[float]
    peak: Peak | None


def verify(
    point: Point, chosen: Compared, memory: float, rounds: int, seconds: float
) -> list[VerifiedPlan]:
    """Measure feasible plans of the chosen batch size, the choice first, then by prediction."""
    programme = chosen.planned.measured.programme
    others = feasible_plans(programme, memory, _NUM_FASTEST)
    plans = [chosen.plan, *(plan for plan in others if plan != chosen.plan)]
    choices = [choice_of(programme, plan) for plan in plans]
    steps = [WholeStep(point, choice, 1.0) for choice in choices]
    taken = in_process(repeat_steps, steps, rounds, seconds, _SEED)
    peaks = [measured_peak(point, choice) for choice in choices[:_NUM_PEAKS]]
    padded = [*peaks, *([None] * (len(plans) - len(peaks)))]
    return [VerifiedPlan(*each) for each in zip(plans, taken, padded, strict=True)]


def measured_peak(point: Point, choice: Choice) -> Peak:
    """Measure the peak of a step by a choice in a fresh process; without one, as it is."""
    return in_process(measure_plan_peak, point, choice)


def rank(verified: Sequence[VerifiedPlan]) -> int:
    """Return the place of the first plan by measured median, 1 for the fastest."""
    medians = [median(each.seconds) for each in verified]
    return 1 + sum(seconds < medians[0] for seconds in medians)


def differences(verified: Sequence[VerifiedPlan]) -> list[Difference]:
    """Return how much more time each plan takes than the first, by rounds."""
    return [difference(verified[0].seconds, each.seconds) for each in verified]


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
