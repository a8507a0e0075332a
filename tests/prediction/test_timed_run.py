"""A run without training takes the times of the run that trains, by every scheme's rule."""

import itertools
from statistics import fmean

import pytest

from paceline.clock.run_spec import RunSpec
from paceline.clock.virtual.simulation import Simulation
from paceline.clock.virtual.virtual_strategy import FREE
from paceline.prediction.predict import simulate_point, timed_run, whole_rounds
from paceline.record.point import Point
from paceline.study.compose import composed
from paceline.timing.profile import ClusterProfile, Link, SharedCores
from paceline.timing.workload import OwnNetwork
from tests.clock.virtual.trained import JITTERED, SCHEMES, train, workers_for
from tests.tiny import CONF, point_of, run_tiny, tiny_point

NUM_WEIGHTS = 103  # of the tiny network
NUM_BYTES = 8 * NUM_WEIGHTS


MACHINE = (Link(0, 1), Link(0.05, 50_000), None, 0.02, 100_000)
CORES = SharedCores(step_seconds={1: 1.0}, speeds={1: 1, 2: 1.75}, ddp_seconds=0.1)
PROFILES = {
    "free": FREE,
    "one machine": ClusterProfile(*MACHINE),
    "shared cores": ClusterProfile(*MACHINE, node_cores=2, shared_cores=CORES),
    "nodes": ClusterProfile(Link(0.05, 20_000), Link(0.02, 50_000), 2, 0.02, 100_000),
}
CASES = [  # by turns one of the four of a scheme is not slow
    pytest.param(name, profile, marks=pytest.mark.slow if (number + place) % 4 else [])
    for number, name in enumerate(SCHEMES)
    for place, profile in enumerate(PROFILES)
]


@pytest.mark.parametrize(("name", "profile"), CASES)
def test_times_are_those_of_the_run_that_trains(name, profile):
    """Shards of several servers differ by a weight there, and here by none: times by as much in
    the mean, and who comes first of two that are as close.
    """
    scheme = SCHEMES[name]()
    workers, profile = workers_for(scheme, 6), PROFILES[profile]
    steps = whole_rounds(scheme, workers, 10)
    run = RunSpec(workers, num_steps=steps, workload=OwnNetwork().of_size(NUM_BYTES, 0))
    clock = Simulation(scheme, run, profile, JITTERED).completed()
    trained = train(scheme, workers, steps, length=2 * steps, profile=profile)[0].simulation
    tolerance = 1e-12 if scheme.servers < 2 else scheme.servers / NUM_WEIGHTS
    ours, theirs = (
        [[*each.step_ends, each.seconds_communicating] for each in run.workers]
        for run in (clock, trained)
    )
    if scheme.servers > 1:
        ours, theirs = ([[fmean(itertools.chain(*each))]] for each in (ours, theirs))
    for own, other in zip(ours, theirs, strict=True):
        assert own == pytest.approx(other, rel=tolerance, abs=tolerance)
    assert clock.kernel.now == pytest.approx(trained.kernel.now, rel=tolerance)
    if scheme.servers == 1:
        assert clock.report().servers[0].pushes == trained.report().servers[0].pushes


@pytest.mark.slow
def test_data_that_move_take_the_time_of_the_run_that_trains(tmp_path):
    links = {"latency": 0.01, "bandwidth": 10_000.0}
    config = tiny_point(
        "sync_allreduce", 4, 4, cluster="virtual", cluster__link=links, cluster__node_link=links
    )
    config["data"] = {**config["data"], "placement": "partitioned", "shuffle_every": 1}
    seen, _ = run_tiny(config, tmp_path)
    point = point_of(config)
    clock = simulate_point(point, 36, workload=point.workload.of_size(NUM_BYTES, 0)).completed()
    for ours, theirs in zip(clock.workers, seen.workers, strict=True):
        assert ours.step_ends == pytest.approx(theirs.step_ends, rel=1e-12)
        assert ours.seconds_fetching == pytest.approx(theirs.seconds_data, rel=1e-9)
        assert ours.seconds_fetching > 0


def predicted(*overrides, steps=50):
    config = composed(["cluster=virtual", *overrides], CONF.parent)
    point = Point.of(config)
    return timed_run(point, steps, point.workload.of_size(NUM_BYTES, 0))


def test_one_server_is_the_bottleneck_and_staleness_is_counted():
    """Four workers of 1 s each, and a server that works for half a second for each push."""
    run = predicted(
        "workers=4",
        "scheme=async_parameter_server",
        "scheme.servers=1",
        "cluster.server_seconds=0.5",
    )
    assert run.images_per_second == pytest.approx(32 / 0.5, rel=0.01)
    assert run.busiest == ("server 0", pytest.approx(1, abs=0.02))
    assert sum(run.staleness.values()) == 200
    assert run.mean_staleness == pytest.approx(3, abs=0.05)


def test_shares_of_time_by_hand():
    """Of 2 s a step the fast one waits half; the all-reduce of two takes a fifth of 2.5 s."""
    free = predicted("workers=4", "cluster.step_seconds=0.5", "batch_size=8")
    assert free.images_per_second == pytest.approx(4 * 8 / 0.5)
    assert (free.computing, free.exchanging, free.waiting) == (1, 0, 0)
    assert (free.busiest, not free.staleness) == (("nothing", 0), True)
    link = f"cluster.node_link.bandwidth={2 * NUM_BYTES}"
    run = predicted("workers=2", "cluster.slow_workers=1", "cluster.slow_factor=2", link)
    assert run.images_per_second == pytest.approx(2 * 32 / 2.5)
    assert (run.computing, run.waiting, run.exchanging) == pytest.approx((3 / 5, 1 / 5, 1 / 5))
    assert run.busiest == ("all-reduce", pytest.approx(0.2))


@pytest.mark.parametrize(("collective", "factor"), [("ring", 1), ("tree", 2)])
def test_messages_are_those_of_the_workload_and_hide_but_for_the_last_bucket(collective, factor):
    """Of the 102.2 MB of ResNet-50; at 1 GB/s they fit into backward, two thirds of a second."""

    def exchanging(rate, overlap):
        settings = ("workers=2", "workload=resnet50", f"scheme.collective={collective}")
        link = (f"cluster.node_link.bandwidth={rate}", f"cluster.overlap={overlap}")
        return 64 / predicted(*settings, *link).images_per_second - 1

    assert exchanging("1e8", "false") == pytest.approx(factor * 1.02228128)
    assert exchanging("1e9", "false") == pytest.approx(factor * 0.102228128)
    assert 0 < exchanging("1e9", "true") < factor * 0.027
