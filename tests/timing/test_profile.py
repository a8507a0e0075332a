"""A modelled cluster by its settings, as a file of conf/cluster has them."""

import math

import numpy as np
import pytest

from paceline.errors import SettingError
from paceline.timing.profile import ClusterProfile, Link, SharedCores, shuffle_seconds

SETTINGS = {
    "workers_per_node": 4,
    "node_cores": 16,
    "link": {"latency": 1e-5, "bandwidth": 1_000_000},
    "node_link": {"latency": 0, "bandwidth": None},
    "server_seconds": 0.5,
    "server_bandwidth": None,
}


def test_null_is_no_limit():
    profile = ClusterProfile(**SETTINGS)
    assert profile.link == Link(1e-5, 1e6)
    assert profile.node_link == Link(0, math.inf)
    assert (profile.server_seconds, profile.server_bandwidth) == (0.5, math.inf)


def test_a_message_takes_latency_and_its_bytes():
    assert Link(0.5, 100).seconds(200) == 2.5
    assert Link(0.5, math.inf).seconds(200) == 0.5


def test_workers_fill_node_after_node():
    profile = ClusterProfile(**SETTINGS)
    assert [profile.num_nodes(workers) for workers in (1, 4, 5, 8, 9)] == [1, 1, 2, 2, 3]
    assert [profile.node_of(worker) for worker in (0, 3, 4, 8)] == [0, 0, 1, 2]
    assert [profile.largest_node(workers) for workers in (1, 3, 4, 9)] == [1, 3, 4, 4]


def test_workers_meet_on_nodes_and_between_them():
    link, node_link = Link(1, 2), Link(3, 4)
    profile = ClusterProfile(link, node_link, 4, 0, 1)
    assert profile.levels(1) == []
    assert profile.levels(3) == [(node_link, 3)]
    assert profile.levels(9) == [(node_link, 4), (link, 3)]
    assert ClusterProfile(link, node_link, 1, 0, 1).levels(9) == [(link, 9)]
    assert ClusterProfile(link, node_link, None, 0, 1).levels(9) == [(node_link, 9)]


def test_without_nodes_all_is_on_one_machine():
    profile = ClusterProfile(**{**SETTINGS, "workers_per_node": None})
    assert profile.num_nodes(100) == 1
    assert profile.node_of(99) == 0
    assert profile.one_machine
    assert not ClusterProfile(**SETTINGS).one_machine


def test_what_is_missing_is_named():
    settings = {**SETTINGS, "link": {"latency": 0}}
    with pytest.raises(SettingError, match=r"cluster\.link\.bandwidth: a value is needed"):
        ClusterProfile(**settings)


def test_what_is_no_part_of_a_link_is_named():
    settings = {**SETTINGS, "link": {"latency": 0, "bandwidth": 1, "length": 2}}
    with pytest.raises(SettingError, match=r"cluster\.link\.length: there is no such setting"):
        ClusterProfile(**settings)


CORES = SharedCores(step_seconds={8: 1.0, 32: 3.0}, speeds={1: 1, 2: 1.8, 4: 1.4}, ddp_seconds=0)


@pytest.mark.parametrize(("processes", "speed"), [(1, 1), (2, 1.8), (3, 1.6), (4, 1.4), (9, 1.4)])
def test_the_speed_of_many_is_linear_between_those_measured_and_stays(processes, speed):
    assert CORES.speed(processes) == pytest.approx(speed)


@pytest.mark.parametrize(("batch_size", "seconds"), [(8, 1), (20, 2), (64, 6)])
def test_a_step_alone_goes_by_its_batch(batch_size, seconds):
    assert CORES.mean_step_seconds(batch_size) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("changes", "setting"),
    [
        ({"speeds": {2: 1.8}}, "speeds"),
        ({"speeds": {1: 2.0}}, "speeds"),
        ({"step_seconds": {}}, "step_seconds"),
    ],
)
def test_what_shared_cores_cannot_be_is_refused_by_its_name(changes, setting):
    right = {"step_seconds": {8: 1.0}, "speeds": {1: 1}, "ddp_seconds": 0}
    with pytest.raises(SettingError) as refused:
        SharedCores(**{**right, **changes})
    assert refused.value.setting.startswith(f"cluster.shared_cores.{setting}")


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
