"""What workers send to form a mean: the same on both clocks, whatever the collective."""

import pytest

from paceline.exchange.collectives import COLLECTIVES
from paceline.exchange.collectives import collective as named
from paceline.record.certificate import run_log
from tests.clock.wall.splits import trained_together
from tests.tiny import CLOCKS, point_of, run_tiny, tiny_point

WORKERS, NUM_BYTES = 3, 103 * 8  # of the tiny network, in float64
HALVES = {"none": 1, "fp16": 4}
CASES = [(name, compression) for name in COLLECTIVES for compression in HALVES]


def configured(scheme, clock, **settings):
    return tiny_point(scheme, WORKERS, 4, training__epochs=1, **settings, **CLOCKS[clock])


def counted(workers):
    """(bytes sent, received) of each worker, and its steps."""
    return [(each.bytes_sent, each.bytes_received) for each in workers], workers[0].steps


def exchanged(scheme, clock, folder, **settings):
    seen, _ = run_tiny(configured(scheme, clock, **settings), folder)
    return counted(seen.workers)


@pytest.fixture(scope="module")
def virtual(tmp_path_factory):
    """By collective and compression."""
    folder = tmp_path_factory.mktemp("virtual")
    return {
        (name, compression): exchanged(
            "sync_allreduce",
            "virtual",
            folder,
            scheme__collective=name,
            scheme__compression=compression,
        )
        for name, compression in CASES
    }


@pytest.fixture(scope="module")
def wall(tmp_path_factory):
    """By collective and compression; all in the same processes, one after the other."""
    configs = [
        configured(
            "sync_allreduce", "wall", scheme__collective=name, scheme__compression=compression
        )
        for name, compression in CASES
    ]
    found = {}
    trained = trained_together(configs, tmp_path_factory.mktemp("wall"))
    for case, config, (reports, _) in zip(CASES, configs, trained, strict=True):
        workers = [worker for report in reports for worker in report.strategy.workers]
        scheme = point_of(config).scheme
        assert not scheme.broken(run_log(scheme, WORKERS, workers, []))
        found[case] = counted(workers)
    return found


@pytest.mark.parametrize(("collective", "compression"), CASES)
def test_both_clocks_count_the_same(collective, compression, virtual, wall):
    """fp16 sends a quarter of float64."""
    found, steps = wall[collective, compression]
    assert (found, steps) == virtual[collective, compression]
    whole = [tuple(HALVES[compression] * count for count in each) for each in found]
    assert sum(sent for sent, _ in whole) >= steps * 2 * (WORKERS - 1) * NUM_BYTES
    declared = named(collective).volumes(WORKERS, NUM_BYTES // 8)
    assert [sent for sent, _ in whole] == [steps * 8 * each.sent for each in declared]


def test_a_mean_of_weights_too(tmp_path):
    both = [exchanged("local_sgd", clock, tmp_path, scheme__period=2) for clock in CLOCKS]
    assert both[0] == both[1]
    counts, steps = both[0]
    assert sum(sent for sent, _ in counts) == steps // 2 * 2 * (WORKERS - 1) * NUM_BYTES
