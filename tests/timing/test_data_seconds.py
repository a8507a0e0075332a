"""Times of moving data, by hand: 4 workers, 2 on a node."""

import numpy as np
import pytest

from paceline.timing.profile import ClusterProfile, Link, shuffle_seconds

EACH = 100  # bytes from every worker to every other
ALL = EACH * (1 - np.eye(4, dtype=int))


def profile(workers_per_node, **changes):
    links = {"link": Link(0.5, 10), "node_link": Link(0.25, 50)}
    return ClusterProfile(
        **links,
        workers_per_node=workers_per_node,
        server_seconds=0,
        server_bandwidth=float("inf"),
        **changes,
    )


def test_a_shuffle_takes_its_rounds_and_the_bytes_of_the_fullest_link():
    assert shuffle_seconds(ALL, profile(1)) == pytest.approx(3 * 0.5 + 300 / 10)
    assert shuffle_seconds(ALL, profile(2)) == pytest.approx(3 * 0.5 + 400 / 10)
    assert shuffle_seconds(ALL, profile(None)) == pytest.approx(3 * 0.25 + 300 / 50)
    assert shuffle_seconds(ALL, profile(None, node_cores=2)) == 3 * 0.25 + 1200 / 2 / 50


@pytest.mark.parametrize("workers_per_node", [1, 2, 3, None])
@pytest.mark.parametrize("node_cores", [None, 1])
def test_bytes_that_flow_the_other_way_take_as_long(workers_per_node, node_cores):
    """Links are full-duplex, so that a matrix of bytes and its transpose take equal time."""
    rng, times = np.random.default_rng(0), []
    for _ in range(8):
        matrix = rng.integers(0, 200, (4, 4)) * (1 - np.eye(4, dtype=int))
        matrix[:, rng.integers(4)] *= 5  # one worker receives much more than it sends
        one, other = (
            shuffle_seconds(each, profile(workers_per_node, node_cores=node_cores))
            for each in (matrix, matrix.T)
        )
        assert one == other
        times.append(one)
    assert len({*times}) == 8


def test_one_worker_shuffles_in_no_time():
    assert shuffle_seconds(np.zeros((1, 1), int), profile(None)) == 0
