"""What workers send to form a mean: the same on both clocks, whatever the collective."""

import pytest

from paceline.exchange.collectives import COLLECTIVES, collective
from paceline.scheme.sync_allreduce import SyncAllReduce
from paceline.timing.profile import ClusterProfile, Link
from tests.clock.virtual.trained import train
from tests.tiny import CLOCKS, run_tiny, run_together, tiny_point

WORKERS, NUM_BYTES = 3, 103 * 8  # of the tiny network, in float64
HALVES = {"none": 1, "fp16": 4}


CASES = [(name, compression) for name in COLLECTIVES for compression in HALVES]


def counted(configs, folder):
    """Of each run: (bytes sent, received) of each worker, and its steps."""
    folder.mkdir()
    return [
        ([(each.bytes_sent, each.bytes_received) for each in seen.workers], seen.workers[0].steps)
        for seen, _ in run_together(configs, folder)
    ]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """By clock, what is counted in CASES and in a run of local SGD."""
    settings = [{"scheme__collective": name, "scheme__compression": c} for name, c in CASES]
    schemes = [
        *(("sync_allreduce", each) for each in settings),
        ("local_sgd", {"scheme__period": 2}),
    ]
    folder = tmp_path_factory.mktemp("bytes")
    return {
        clock: counted(
            [
                tiny_point(scheme, WORKERS, 4, training__epochs=1, **each, **CLOCKS[clock])
                for scheme, each in schemes
            ],
            folder / clock,
        )
        for clock in CLOCKS
    }


def test_both_clocks_count_the_same(found):
    """fp16 sends a quarter of float64."""
    assert found["wall"] == found["virtual"]
    *means, (counts, steps) = found["wall"]
    assert sum(sent for sent, _ in counts) == steps // 2 * 2 * (WORKERS - 1) * NUM_BYTES
    for (name, compression), (counts, steps) in zip(CASES, means, strict=True):
        whole = [HALVES[compression] * sent for sent, _ in counts]
        assert sum(whole) >= steps * 2 * (WORKERS - 1) * NUM_BYTES
        declared = collective(name).volumes(WORKERS, NUM_BYTES // 8)
        assert whole == [steps * 8 * each.sent for each in declared], name


@pytest.mark.slow
def test_half_precision_is_that_of_torchs_hook_to_a_rounding(tmp_path):
    ends = {}
    for clock, compression in [("wall", "bf16"), ("virtual", "bf16"), ("virtual", "none")]:
        folder = tmp_path / f"{clock} {compression}"
        folder.mkdir()
        settings = {"scheme__compression": compression, **CLOCKS[clock]}
        config = tiny_point("sync_allreduce", 2, 8, **settings)
        ends[clock, compression] = run_tiny(config, folder)[1]["1.weight"]
    torchs, ours, exact = ends.values()
    assert (ours - torchs).norm() < (ours - exact).norm() < 0.01 * exact.norm()


def test_messages_are_as_long_as_compressed_ones():
    """80 + 5 + 15 + 3 weights of 8 bytes."""
    slow = ClusterProfile(Link(0.0, 100.0), Link(0.0, 100.0), 1, 0.0, 100.0)
    found = []
    for name in ("none", "bf16"):
        strategy, _ = train(SyncAllReduce(compression=name), 2, 20, profile=slow)
        found.append((strategy.simulation.workers[0].bytes_sent, strategy.simulation.kernel.now))
    (sent, ended), (sent_half, ended_half) = found
    assert (sent, sent_half) == (10 * 103 * 8, 10 * 103 * 2)
    assert ended > ended_half
