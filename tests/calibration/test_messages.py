"""Costs of messages: the arithmetic by hand, and real ones between two processes."""

import pytest

from paceline.calibration.messages import (
    allreduce_link_of,
    copy_bandwidth,
    line_through,
    link_of,
    measure_pair,
)
from paceline.cluster.launcher import launch

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


def test_a_push_and_its_answer_share_the_time():
    assert link_of({25: 3.0, 100: 9.0}) == pytest.approx((0.5, 0.01))


def test_memory_is_copied_at_some_gigabytes_per_second():
    assert 1e8 < copy_bandwidth(2**20) < 1e13


def test_two_processes_measure_each_other(tmp_path):
    target = f"{measure_pair.__module__}:{measure_pair.__name__}"
    worker, server = launch(target, (SIZES,), workers=1, servers=1, log_folder=tmp_path)
    assert list(worker) == ["push_pull", "allreduce"]
    assert list(server) == ["serve"]
    for times in (*worker.values(), *server.values()):
        assert list(times) == SIZES
        assert all(0 < seconds < 1 for seconds in times.values())


def test_gloos_messages_by_hand():
    """Eight messages in all, each of a second and of a quarter of the weights at 100 bytes/s."""
    times = {1: 99.0, 100: (8 + 8) / 2, 1000: (8 + 80) / 2}  # two cores pass them
    assert allreduce_link_of(times, cores=2) == pytest.approx((1, 1 / 100))
    enough = {100: 2 + 4, 1000: 2 + 40}
    assert allreduce_link_of(enough, cores=64) == pytest.approx((1, 1 / 100))
