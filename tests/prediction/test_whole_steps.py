"""A shortlist by prediction, a choice by whole steps whose timings are planted."""

import pytest

from paceline.prediction.blocks import PLAIN, Alternative
from paceline.prediction.measure_blocks import MeasuredBlocks
from paceline.prediction.plan import Planned
from paceline.prediction.programme import BlockCosts, Option, Programme
from paceline.prediction.race import ordered, shortlist
from paceline.prediction.step_memory import StepMemory

BF16, RECOMPUTE = Alternative(precision="bf16"), Alternative(recompute=True)
MEMORY = 100.0


def planned(batch_size, **seconds):
    """Batch size with one block, whose alternatives take planted seconds; bf16 needs too much."""
    alternatives = {"plain": PLAIN, "bf16": BF16, "recompute": RECOMPUTE}
    options = [
        Option(alternatives[name], each, 1, 1, 500 if name == "bf16" else 50)
        for name, each in seconds.items()
    ]
    programme = Programme([BlockCosts("b", options, 0, 0, 0)], 0, 0, 0, False)
    measured = MeasuredBlocks(batch_size, StepMemory(*[0] * 7), 1.0, programme, [])
    (unbounded,) = programme.fastest(float("inf"), 1)
    (plan,) = programme.fastest(MEMORY, 1) or [None]
    return Planned(measured, plan, unbounded, programme.smallest())


def listed(*batches):
    return [(e.planned.batch_size, str(e.plan)) for e in shortlist(batches, MEMORY)]


def test_the_shortlist_has_what_is_near_by_prediction_of_all_batch_sizes():
    batches = (
        planned(10, plain=1.00, recompute=1.05, bf16=0.5),
        planned(20, plain=2.18, recompute=2.04),
        planned(40, plain=4.60, recompute=4.70),
    )
    assert listed(*batches) == [
        (10, "plain"),  # 0.1 s an image
        (20, "recompute"),
        (10, "recompute"),
        (20, "plain"),
    ]


def compared(*seconds):
    candidates = shortlist([planned(10, plain=1.00, recompute=1.02)], MEMORY)
    return ordered(candidates, seconds)


def test_whole_steps_choose_not_the_prediction():
    chosen, other = compared([1.2, 1.3, 1.1], [1.0, 1.1, 1.0])
    assert (str(chosen.plan), str(other.plan)) == ("recompute", "plain")
    assert (chosen.step_seconds, other.step_seconds) == (1.0, 1.2)
    assert chosen.to(other).share == pytest.approx(1.3 / 1.1 - 1)


def test_a_plan_that_was_dropped_early_is_not_chosen():
    candidates = shortlist([planned(10, plain=1.0, recompute=1.02)] * 2, MEMORY)
    places = [1, 1, 2, 2]
    order = ordered(candidates, [[0.1], [3.0, 3.0], [2.0, 2.0], [0.2]])
    assert [len(each.seconds) for each in order] == sorted(places, reverse=True)
    assert [each.step_seconds for each in order] == [2.0, 3.0, 0.1, 0.2]


def test_batch_sizes_are_compared_per_image():
    batches = [planned(10, plain=1.0), planned(20, plain=2.0)]
    order = ordered(shortlist(batches, MEMORY), [[1.0] * 6, [1.9] * 6])
    assert [each.planned.batch_size for each in order] == [20, 10]
    assert order[0].to(order[1]).share == pytest.approx(0.1 / 0.095 - 1)
