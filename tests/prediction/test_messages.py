"""Costs of messages: the arithmetic by hand, and real ones between two processes."""

import pytest

from paceline.prediction.messages import added_by, measure_pair
from paceline.prediction.this_machine import allreduce_link_of, line_through
from tests.launching import launch

SIZES = [1, 500]


def test_the_least_time_and_the_most_weights_make_a_line():
    """0.5 s and a second for each 100 bytes; what is between has no say."""
    times = {25: 1.5, 50: 9.0, 100: 4.5}
    assert line_through(times) == pytest.approx((0.5, 0.01))


def test_a_message_slower_than_a_larger_one_has_no_say():
    assert line_through({1: 9.0, 25: 1.5, 100: 4.5}) == pytest.approx((0.5, 0.01))


def test_noise_makes_no_negative_costs():
    assert line_through({1: 2.0, 100: 1.0}) == (2.0, 0.0)
    assert line_through({1: 0.001, 2: 1.0})[0] == 0


def test_what_is_added_is_a_median_over_blocks():
    """The third pair of blocks was held up."""
    steps = [1.0, 1.0, 1.5, 1.5, 2.0, 2.0, 2.4, 2.6, 1.0, 1.0, 9.0, 9.0]
    assert added_by(steps, 2) == pytest.approx(0.5)
    assert added_by([2.0, 1.0], 1) == 0


def test_two_processes_measure_each_other(tmp_path):
    target = f"{measure_pair.__module__}:{measure_pair.__name__}"
    worker, server = launch(target, (SIZES, 1), workers=1, servers=1, log_folder=tmp_path)
    assert list(worker) == ["push_pull", "allreduce"]
    assert list(server) == ["serve", "handle"]
    for times in (*worker.values(), *server.values()):
        assert list(times) == SIZES
        assert all(0 < seconds < 1 for seconds in times.values())


def test_gloos_messages_by_hand():
    """Two rounds of a second; all the weights, by every core, at 50 bytes/s."""
    assert allreduce_link_of(2.0, 0.02, cores=2) == pytest.approx((1, 0.02))
    assert allreduce_link_of(2.0, 0.02, cores=64) == pytest.approx((1, 0.02))
