"""The integer programme against brute force."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.prediction.blocks import ALTERNATIVES
from paceline.prediction.lemma import efficiency, largest_overhead, servers_needed
from paceline.prediction.programme import BlockCosts, Option, Programme

NUM_INSTANCES = 100


def random_programme(random):
    blocks = []
    for index in range(random.integers(2, 5)):
        number = random.integers(2, 5)
        taken = random.choice(len(ALTERNATIVES), number, replace=False)
        options = []
        for place in taken:
            kept, more = random.integers(1, 100, 2)
            forward = kept + random.integers(0, 20)
            seconds = float(random.integers(1, 50)) / 8
            backward = int(kept + more)
            options.append(Option(ALTERNATIVES[place], seconds, int(kept), int(forward), backward))
        gradients, conversion, size = random.integers(0, 20, 3)
        blocks.append(BlockCosts(f"b{index}", options, int(gradients), conversion / 16, int(size)))
    return Programme(blocks, 2.0, int(random.integers(0, 40)), 60, bool(random.integers(2)))


def needed_and_seconds(programme, options):
    """Bytes at every moment and the seconds of a step, one block after the other."""
    blocks, moments = programme.blocks, [programme.update_bytes]
    gradients = sum(block.gradients for block in blocks)
    seconds, kept, before, behind = programme.seconds, 0, "contiguous", gradients
    for block, option in zip(blocks, options, strict=True):
        converts = option.alternative.layout != before
        copied = converts * block.conversion_bytes
        seconds += option.seconds + converts * block.conversion_seconds
        behind -= block.gradients
        there = gradients if programme.keeps_gradients else behind
        moments.append(programme.bytes + gradients + kept + copied + option.forward)
        moments.append(programme.bytes + there + kept + copied + option.backward)
        kept += option.kept + copied
        before = option.alternative.layout
    return max(moments), seconds


def test_it_finds_what_brute_force_finds():
    random, solved = np.random.default_rng(0), 0
    for _ in range(NUM_INSTANCES):
        programme = random_programme(random)
        every = [
            (needed_and_seconds(programme, options), options)
            for options in itertools.product(*(block.options for block in programme.blocks))
        ]
        memory = int(random.integers(60, 500))
        feasible = sorted(seconds for (needed, seconds), _ in every if needed <= memory)
        plans = programme.fastest(memory, 3)
        assert [plan.seconds for plan in plans] == feasible[:3]
        for plan in plans:
            assert needed_and_seconds(programme, plan.options) == (plan.fullest.bytes, plan.seconds)
            assert plan.fullest.bytes <= memory
        least = min(needed for (needed, _), _ in every)
        assert programme.smallest().fullest.bytes == least
        assert bool(plans) == (least <= memory)
        solved += bool(plans)
    assert 20 < solved < NUM_INSTANCES - 20


def test_examples_of_workers():
    assert largest_overhead(0.8, 4) == pytest.approx(0.2 / 2.2)  # 9.09 %
    assert 4 * efficiency(0.2 / 2.2, 4) == pytest.approx(3.2)


@pytest.mark.parametrize(
    ("overhead", "speedups"),
    [(0.01, [1.98, 3.88, 7.48, 13.93]), (0.1, [1.83, 3.14, 4.89, 6.77])],
)
def test_speedups_of_2_4_8_16(overhead, speedups):
    assert [round(n * efficiency(overhead, n), 2) for n in (2, 4, 8, 16)] == speedups


def test_example_of_servers():
    assert servers_needed(240e6, 8, 1.25e9, 1.0) == 4  # 3.07


@given(st.floats(1e-3, 10), st.integers(2, 1000))
def test_overhead_inverts_efficiency(overhead, workers):
    alpha = efficiency(overhead, workers)
    assert largest_overhead(alpha, workers) == pytest.approx(overhead)
