"""Images per second, by hand."""

import numpy as np
import pytest

from paceline.record.observed import images_per_second


def rate(*step_ends, warmup=0.0, batch_size=8):
    return images_per_second([np.array(ends) for ends in step_ends], batch_size, warmup)


def test_steps_after_the_first_over_the_time_that_they_took():
    assert rate([5.0, 6.0, 7.0, 8.0]) == 8 * 3 / 3


def test_a_slow_start_and_a_slow_end_are_left_out():
    ends = [5.0, 10.0, 11.0, 12.0, 13.0, 20.0]
    assert rate(ends) == 8 * 5 / 15
    assert rate(ends, warmup=0.2) == 8 * 3 / 3


def test_workers_apart_add_up():
    """Of eight steps a quarter is warm-up; 1.5 of each worker are behind the 1.5 s after that."""
    assert rate([1.0, 2.0, 3.0, 4.0], [1.5, 2.5, 3.5, 4.5], warmup=0.25) == 8 * 3 / 1.5


@pytest.mark.parametrize("warmup", [0.0, 0.125, 0.25, 0.375])
def test_workers_in_lockstep_count_whole_rounds(warmup):
    """Two steps per second, wherever the warm-up ends within a round."""
    ends = [1.0, 2.0, 3.0, 4.0]
    assert rate(ends, ends, warmup=warmup) == 16


@pytest.mark.parametrize("rounds", [12, 13, 24])
def test_workers_that_end_their_rounds_a_moment_apart_are_no_faster(rounds):
    ends = np.arange(1.0, rounds + 1)
    workers = [ends + 0.001 * worker for worker in range(16)]
    assert rate(*workers, warmup=0.1) == pytest.approx(16 * 8, rel=0.001)


def test_workers_that_wait_for_the_last_step_of_another_are_no_slower():
    """Each takes a step a second; at the end all but the last wait for it."""
    workers = [np.arange(1.0, 21) + worker / 4 for worker in range(4)]
    for ends in workers:
        ends[-1] = 25.0
    assert rate(*workers, warmup=0.1) == pytest.approx(4 * 8, rel=1e-12)


def test_a_fast_worker_and_a_slow_one():
    """From 1 s to 5 s: four steps, and one and two thirds, as a third of the first came before."""
    assert rate([1.0, 2.0, 3.0, 4.0, 5.0], [3.0, 5.0]) == pytest.approx(8 * (4 + 5 / 3) / 4)


def test_too_few_steps_have_no_rate():
    assert rate([1.0]) is None
    assert rate([]) is None
    assert rate([1.0, 2.0, 3.0], warmup=0.4) is None
    assert rate([1.0], [1.0]) is None
