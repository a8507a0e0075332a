"""Images per second, by hand."""

import numpy as np

from paceline.measurement.throughput import images_per_second


def rate(*step_ends, warmup=0.0, batch_size=8):
    return images_per_second([np.array(ends) for ends in step_ends], batch_size, warmup)


def test_steps_after_the_first_over_the_time_that_they_took():
    assert rate([5.0, 6.0, 7.0, 8.0]) == 8 * 3 / 3


def test_a_slow_start_is_left_out():
    ends = [5.0, 10.0, 11.0, 12.0, 13.0]
    assert rate(ends) == 8 * 4 / 8
    assert rate(ends, warmup=0.2) == 8 * 3 / 3


def test_workers_apart_add_up():
    """Of eight steps a quarter is warm-up; five more end in the 2.5 s after the third."""
    assert rate([1.0, 2.0, 3.0, 4.0], [1.5, 2.5, 3.5, 4.5], warmup=0.25) == 8 * 5 / 2.5


def test_workers_in_lockstep_count_whole_rounds():
    """Two steps per second, wherever the warm-up ends within a round."""
    ends = [1.0, 2.0, 3.0, 4.0]
    for warmup in (0.0, 0.125, 0.25, 0.375):
        assert rate(ends, ends, warmup=warmup) == 16


def test_a_fast_worker_and_a_slow_one():
    assert rate([1.0, 2.0, 3.0, 4.0, 5.0], [3.0, 5.0]) == 8 * 6 / 4


def test_too_few_steps_have_no_rate():
    assert rate([1.0]) is None
    assert rate([]) is None
    assert rate([1.0, 2.0, 3.0], warmup=0.9) is None
    assert rate([1.0], [1.0]) is None
