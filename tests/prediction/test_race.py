"""Races by planted timings: which turn wins, how often each is measured, what is significant."""

from itertools import pairwise
from random import Random

import pytest

from paceline.prediction.race import by_turns, difference, race


class PlantedTurns:
    """Turns that take planted seconds of their own clock."""

    def __init__(self, seconds):
        self.seconds, self.now, self.called = seconds, 0.0, []
        self.turns = [lambda index=index: self._take(index) for index in range(len(seconds))]

    def _take(self, index):
        self.called.append(index)
        self.now += self.seconds[index]
        return self.seconds[index]

    def clock(self):
        return self.now


def raced(planted, weights, rounds, seconds):
    return race(planted.turns, weights, rounds, seconds, Random(0), planted.clock)


def test_the_slower_half_is_left_out_until_two_are_left():
    planted = PlantedTurns([8.0, 3.0, 5.0, 1.0, 7.0, 2.0, 6.0, 4.0])
    found = raced(planted, [1.0] * 8, 2, 0.0)
    assert [len(each) for each in found] == [2, 4, 2, 6, 2, 6, 2, 4]
    assert all(set(each) == {planted.seconds[index]} for index, each in enumerate(found))


def test_the_weight_of_a_turn_counts():
    found = raced(PlantedTurns([1.0, 2.0, 3.0]), [9.0, 4.0, 1.0], 1, 0.0)
    assert [len(each) for each in found] == [1, 2, 2]  # 9, 8, 3


def test_each_phase_has_its_share_of_the_time_and_all_rounds():
    found = raced(PlantedTurns([1.0, 1.5, 2.5, 5.0]), [1.0] * 4, 1, 80.0)
    assert [len(each) for each in found] == [4 + 16, 4 + 16, 4, 4]  # 40 s each: 10 s, then 2.5 s
    found = raced(PlantedTurns([1.0, 1.5, 2.5, 5.0]), [1.0] * 4, 6, 80.0)
    assert [len(each) for each in found] == [6 + 16, 6 + 16, 6, 6]


def test_a_single_turn_is_measured():
    assert raced(PlantedTurns([1.0]), [1.0], 3, 5.0) == [[1.0] * 5]


def test_none_has_always_the_same_one_before_it():
    planted = PlantedTurns([1.0] * 4)
    by_turns(planted.turns, 20, 0.0, Random(0), planted.clock)
    rounds = [planted.called[start : start + 4] for start in range(0, 80, 4)]
    assert all(sorted(each) == [0, 1, 2, 3] for each in rounds)
    before = {(first, second) for first, second in pairwise(planted.called) if first != second}
    assert len(before) == 12


def test_a_difference_is_paired_by_round():
    machine = [1.0, 2.0, 1.5, 3.0, 1.2, 2.4, 1.1, 1.9]  # which slows down in some rounds
    apart = difference(machine, [1.01 * each for each in machine])
    assert apart.share == pytest.approx(0.01)
    assert apart.low == pytest.approx(0.01)
    assert apart.significant
    assert not apart.faster
    assert difference([1.01 * each for each in machine], machine).faster


def test_no_difference_is_significant_by_fewer_than_six_rounds():
    assert not difference([1.0] * 5, [9.0] * 5).significant
    assert difference([1.0] * 6, [9.0] * 6).significant
    assert difference([1.0] * 9, [9.0] * 5).high is None  # five are shared
