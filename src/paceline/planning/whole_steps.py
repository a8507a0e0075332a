"""Measures whole steps by plans, by turns in one process."""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from paceline.planning.alternative import Choice, applied
from paceline.planning.blocks import Block, find_blocks
from paceline.planning.measure_blocks import STEP_SECONDS, built_step
from paceline.planning.race import Turn, by_turns, race
from paceline.planning.step_memory import Step
from paceline.planning.timed import timed
from paceline.record.point import Point


class WholeStep(NamedTuple):
    """Step of a point, whose blocks are carried out by a choice. `weight`: of its seconds."""

    point: Point
    choice: Choice
    weight: float


def race_steps(
    steps: Sequence[WholeStep], rounds: int, seconds: float, seed: int
) -> list[list[float]]:
    """Return what `race` returns; call it in a process of its own."""
    weights = [each.weight for each in steps]
    return race(_turns(steps), weights, rounds, seconds, Random(seed))


def repeat_steps(
    steps: Sequence[WholeStep], rounds: int, seconds: float, seed: int
) -> list[list[float]]:
    """Return what `by_turns` returns; call it in a process of its own."""
    return by_turns(_turns(steps), rounds, seconds, Random(seed))


def _turns(steps: Sequence[WholeStep]) -> list[Turn]:
    built = {each.point.batch_size: built_step(each.point) for each in steps}
    blocks = {size: find_blocks(step.module) for size, step in built.items()}
    sizes = [each.point.batch_size for each in steps]
    turns = [
        _turn(built[size], blocks[size], each.choice)
        for size, each in zip(sizes, steps, strict=True)
    ]
    for turn in turns:
        turn()  # builds kernels and asks for memory, which later ones need not
    return turns


def _turn(step: Step, blocks: Sequence[Block], choice: Choice) -> Turn:
    def turn() -> float:
        with applied(blocks, choice):
            return timed(step.take, STEP_SECONDS)

    return turn
