"""A shortlist by prediction, a choice by whole steps whose timings are planted."""

import pytest

from paceline.planning.alternative import PLAIN, Alternative
from paceline.planning.difference import difference
from paceline.planning.measure_blocks import MeasuredBlocks
from paceline.planning.plan import Planned
from paceline.planning.plan_table import table
from paceline.planning.programme import BlockCosts, Option, Programme
from paceline.planning.shortlist import ordered, shortlist
from paceline.planning.step_memory import StepMemory

BF16, RECOMPUTE = Alternative(precision="bf16"), Alternative(recompute=True)
MEMORY = 100.0


def planned(batch_size, updates=None, **seconds):
    """Batch size with one block, whose alternatives take planted seconds; bf16 needs too much."""
    alternatives = {"plain": PLAIN, "bf16": BF16, "recompute": RECOMPUTE}
    options = [
        Option(alternatives[name], each, 1, 1, 500 if name == "bf16" else 50)
        for name, each in seconds.items()
    ]
    programme = Programme([BlockCosts("b", options, 0, 0, 0)], 0, 0, 0, False)
    measured = MeasuredBlocks(batch_size, StepMemory(*[0] * 7), 1.0, programme, [])
    (unbounded,) = programme.fastest(float("inf"), 1)
    plans = programme.fastest(MEMORY, 2)
    return Planned(measured, plans, unbounded, programme.smallest(), updates)


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


def test_the_shortlist_goes_by_the_time_to_the_target_where_it_is_known():
    batches = (
        planned(10, 100, plain=1.0, recompute=1.2),
        planned(20, 95, plain=1.1),
        planned(40, plain=0.1),
    )
    assert listed(*batches) == [(10, "plain"), (20, "plain")]


def compared(*seconds):
    candidates = shortlist([planned(10, plain=1.00, recompute=1.02)], MEMORY)
    return ordered(candidates, seconds)


def test_whole_steps_choose_not_the_prediction():
    chosen, other = compared([1.2, 1.3, 1.1], [1.0, 1.1, 1.0])
    assert (str(chosen.plan), str(other.plan)) == ("recompute", "plain")
    assert (chosen.step_seconds, other.step_seconds) == (1.0, 1.2)
    assert chosen.to(other).share == pytest.approx(1.3 / 1.1 - 1)


def test_who_was_left_out_early_is_not_chosen():
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


def test_a_tie_is_said_and_a_difference_is_not_called_one():
    tie = table([planned(10, plain=1.0)], compared([1.0, 1.1] * 5, [1.1, 1.01] * 5), MEMORY)
    assert "they cannot be told apart; b: " in tie
    clear = table([planned(10, plain=1.0)], compared([1.0] * 6, [1.1] * 6), MEMORY)
    assert "runner-up of 2 compared, seconds per image: +10.00 % (+10.00 to +10.00 %); " in clear
    alone = ordered(shortlist([planned(10, plain=1.0)], MEMORY), [[1.0]])
    assert "runner-up: none" in table([planned(10, plain=1.0)], alone, MEMORY)


def test_a_difference_is_paired_by_round():
    machine = [1.0, 2.0, 1.5, 3.0, 1.2, 2.4, 1.1, 1.9]  # which slows down in some rounds
    apart = difference(machine, [1.01 * each for each in machine])
    assert apart.share == pytest.approx(0.01)
    assert apart.low == pytest.approx(0.01)
    assert apart.told_apart
    assert not apart.faster
    assert difference([1.01 * each for each in machine], machine).faster


def test_fewer_than_six_rounds_tell_nothing_apart():
    assert not difference([1.0] * 5, [9.0] * 5).told_apart
    assert difference([1.0] * 6, [9.0] * 6).told_apart
    assert difference([1.0] * 9, [9.0] * 5).high is None  # five are shared
