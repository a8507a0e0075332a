"""Random numbers of a stream: the same one by one, at a time, and in any order."""

import numpy as np

from paceline.random_bits import random_bits, uniform

COUNTERS = [0, 1, 15, 16, 17, 31, 32, 1000]


def test_a_number_is_that_of_its_counter_alone():
    one_by_one = [uniform(counter, "made", 7) for counter in reversed(COUNTERS)]
    bits = random_bits(np.array(COUNTERS), "made", 7)
    assert one_by_one[::-1] == [(int(each >> np.uint64(12)) + 0.5) / 2**52 for each in bits]
    assert all(0 < each < 1 for each in one_by_one)


def test_streams_whose_names_are_equal_in_python_are_apart():
    assert len({uniform(0, "made", seed) for seed in (1, True)}) == 2
