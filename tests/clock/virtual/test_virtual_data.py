"""Data take time on the virtual clock: shuffles between epochs."""

import pytest

from paceline.record.observed import Observed
from paceline.record.result import measured
from paceline.timing.profile import shuffle_seconds
from tests.tiny import point_of, run_tiny, tiny_point

ROW = 16 + 8  # bytes of an image and its label
LINK = {"latency": 0.5, "bandwidth": 100.0}
NODE_LINK = {"latency": 0.125, "bandwidth": 1000.0}


def run(folder, scheme="sync_allreduce", per_node=2, **data):
    """Three epochs of steps of a second each, with messages of weights that take nearly none."""
    settings = {
        "cluster__step_seconds": 1.0,
        "cluster__workers_per_node": per_node,
        "cluster__link": LINK,
        "cluster__node_link": NODE_LINK,
    }
    config = tiny_point(scheme, 4, 4, cluster="virtual", **settings)
    config["data"] = {**config["data"], **data}
    seen, _ = run_tiny(config, folder)
    point = point_of(config)
    scored = Observed(seen.training, scheme=point.scheme, batch_size=4, warmup_fraction=0.0)
    return point, scored


@pytest.mark.parametrize("scheme", ["independent", "sync_allreduce", "local_sgd"])
def test_without_traffic_time_is_as_it_was(scheme, tmp_path):
    _, before = run(tmp_path, scheme)
    _, partitioned = run(tmp_path, scheme, placement="partitioned")
    assert partitioned.seconds == before.seconds
    assert {worker.seconds_data for worker in partitioned.workers} == {0}


@pytest.mark.parametrize("per_node", [2, 1, None])
def test_a_run_is_longer_by_its_shuffles(per_node, tmp_path):
    _, before = run(tmp_path, per_node=per_node)
    shuffled = {"placement": "partitioned", "shuffle_every": 1}
    point, after = run(tmp_path, per_node=per_node, **shuffled)
    order, expected, num_bytes = after.first.order, 0.0, 0
    for period in range(2):
        moved = ROW * moves(order.shares(period), order.shares(period + 1))
        num_bytes += moved.sum()
        expected += shuffle_seconds(moved, point.cluster.profile)
    assert after.seconds - before.seconds == pytest.approx(expected, rel=1e-9)
    numbers = measured(after)
    assert numbers["shuffle_seconds"] == pytest.approx(expected, rel=1e-9)
    assert numbers["shuffle_bytes"] == num_bytes
    assert {worker.seconds_data for worker in after.workers} == {numbers["shuffle_seconds"]}


def moves(before, after):
    """Samples from each member to each other one, counted in sets."""
    import numpy as np

    befores, afters = ([set(share.tolist()) for share in shares] for shares in (before, after))
    counts = np.array([[len(old & new) for new in afters] for old in befores])
    np.fill_diagonal(counts, 0)
    return counts


def test_a_slow_worker_is_waited_for_before_the_second_epoch(tmp_path):
    settings = {"cluster__slow_workers": 1, "cluster__slow_factor": 3.0, "training__epochs": 2}
    config = tiny_point("local_sgd", 4, 4, cluster="virtual", scheme__period=100, **settings)
    config["data"] = {**config["data"], "placement": "partitioned", "shuffle_every": 1}
    seen, _ = run_tiny(config, tmp_path)
    assert sorted(worker.seconds_data for worker in seen.workers) == [0, 2 * 3, 2 * 3, 2 * 3]
