"""What workers send to form a mean: the same on both clocks, whatever the collective."""

import pytest

from paceline.exchange.find_collective import collective as named
from paceline.exchange.find_collective import collective_names
from tests.tiny import CLOCKS, run_tiny, tiny_point

WORKERS, NUM_BYTES = 3, 103 * 8  # of the tiny network, in float64
HALVES = {"none": 1, "fp16": 4}


def exchanged(scheme, clock, folder, **settings):
    """(bytes sent, received) of each worker, and its steps."""
    config = tiny_point(scheme, WORKERS, 4, training__epochs=1, **settings, **CLOCKS[clock])
    seen, _ = run_tiny(config, folder)
    workers = seen.workers
    return [(each.bytes_sent, each.bytes_received) for each in workers], workers[0].steps


@pytest.fixture(scope="module")
def virtual(tmp_path_factory):
    """By collective."""
    folder = tmp_path_factory.mktemp("virtual")
    return {
        name: exchanged("sync_allreduce", "virtual", folder, scheme__collective=name)
        for name in collective_names()
    }


@pytest.mark.parametrize("compression", HALVES)
@pytest.mark.parametrize("collective", collective_names())
def test_both_clocks_count_the_same(collective, compression, virtual, tmp_path):
    """fp16 sends a quarter of float64; the virtual clock compresses nothing."""
    settings = {"scheme__collective": collective, "scheme__compression": compression}
    found, steps = exchanged("sync_allreduce", "wall", tmp_path, **settings)
    whole = [tuple(HALVES[compression] * count for count in each) for each in found]
    assert (whole, steps) == virtual[collective]
    assert sum(sent for sent, _ in whole) >= steps * 2 * (WORKERS - 1) * NUM_BYTES
    declared = named(collective).volumes(WORKERS, NUM_BYTES // 8)
    assert [sent for sent, _ in whole] == [steps * 8 * each.sent for each in declared]


def test_a_mean_of_weights_too(tmp_path):
    both = [exchanged("local_sgd", clock, tmp_path, scheme__period=2) for clock in CLOCKS]
    assert both[0] == both[1]
    counts, steps = both[0]
    assert sum(sent for sent, _ in counts) == steps // 2 * 2 * (WORKERS - 1) * NUM_BYTES
