"""A run without training takes the times of the run that trains, by every scheme's rule."""

import itertools
from statistics import fmean

import pytest

from paceline.clock.flat_optimizer import plain_segment
from paceline.clock.run_spec import RunSpec
from paceline.clock.virtual.virtual_strategy import FREE
from paceline.prediction.predict import idle_segment, point_clock, timed_clock, timed_run
from paceline.record.point import Point
from paceline.study.compose import composed
from paceline.timing.profile import ClusterProfile, Link, SharedCores
from paceline.timing.workload import OwnNetwork
from tests.clock.virtual.trained import JITTERED, SCHEMES, train, workers_for
from tests.tiny import CONF, point_of, run_tiny, tiny_point

NUM_WEIGHTS = 103  # of the tiny network
NUM_BYTES = 8 * NUM_WEIGHTS
PROFILES = {
    "free": FREE,
    "one machine": ClusterProfile(Link(0, 1), Link(0.05, 50_000), None, 0.02, 100_000),
    "shared cores": ClusterProfile(
        *(Link(0, 1), Link(0.05, 50_000), None, 0.02, 100_000),
        node_cores=2,
        shared_cores=SharedCores(step_seconds={1: 1.0}, speeds={1: 1, 2: 1.75}, ddp_seconds=0.1),
    ),
    "nodes": ClusterProfile(Link(0.05, 20_000), Link(0.02, 50_000), 2, 0.02, 100_000),
}


CASES = [  # by turns one of the four of a scheme is not slow
    pytest.param(name, profile, marks=pytest.mark.slow if (number + place) % 4 else [])
    for number, name in enumerate(SCHEMES)
    for place, profile in enumerate(PROFILES)
]


def test_the_segment_without_an_optimizer_is_that_of_sgd():
    ours, its = idle_segment(3), plain_segment(3)
    unused = {"foreach": None, "differentiable": False, "fused": None}
    assert {**ours, "options": {**ours["options"], **unused}} == its


@pytest.mark.parametrize(("name", "profile"), CASES)
def test_times_are_those_of_the_run_that_trains(name, profile):
    """Shards of several servers differ by a weight there, and here by none: times by as much in
    the mean, and who comes first of two that are as close.
    """
    scheme = SCHEMES[name]()
    workers, profile = workers_for(scheme, 6), PROFILES[profile]
    clock = timed_clock(
        scheme,
        RunSpec(workers, workload=OwnNetwork().of_size(NUM_BYTES, 0)),
        profile=profile,
        step_times=JITTERED,
        steps=10,
    )
    steps = clock._run.num_steps
    trained = train(scheme, workers, steps, length=2 * steps, profile=profile)[0].clock
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
    clock = point_clock(point, steps=9, workload=point.workload.of_size(NUM_BYTES, 0))
    for ours, theirs in zip(clock.workers, seen.workers, strict=True):
        assert ours.step_ends == pytest.approx(theirs.step_ends, rel=1e-12)
        assert ours.seconds_fetching == pytest.approx(theirs.seconds_data, rel=1e-9)
        assert ours.seconds_fetching > 0


def predicted(*overrides, steps=50):
    config = composed(["cluster=virtual", *overrides], CONF.parent)
    point = Point.of(config)
    return timed_run(point, steps, point.workload.of_size(NUM_BYTES, 0))


def test_a_free_network_takes_only_the_steps():
    run = predicted("workers=4", "cluster.step_seconds=0.5", "batch_size=8")
    assert run.images_per_second == pytest.approx(4 * 8 / 0.5)
    assert (run.computing, run.exchanging, run.waiting) == (1, 0, 0)
    assert run.busiest == ("nothing", 0)
    assert not run.staleness


def test_shares_of_a_slow_worker_by_hand():
    """Of 2 s a step the fast one waits half; the all-reduce of two takes a fifth of 2.5 s."""
    link = f"cluster.node_link.bandwidth={2 * NUM_BYTES}"
    run = predicted("workers=2", "cluster.slow_workers=1", "cluster.slow_factor=2", link)
    assert run.images_per_second == pytest.approx(2 * 32 / 2.5)
    assert run.computing == pytest.approx((2 + 1) / 5)
    assert run.waiting == pytest.approx(1 / 5)
    assert run.exchanging == pytest.approx(1 / 5)
    assert run.busiest == ("all-reduce", pytest.approx(0.2))


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


@pytest.mark.parametrize("collective", ["ring", "tree"])
def test_messages_are_those_of_the_workload(collective):
    """An all-reduce of ResNet-50 takes its 102.2 MB over the link."""
    settings = ("workers=2", "workload=resnet50", f"scheme.collective={collective}")
    run = predicted(*settings, "cluster.node_link.bandwidth=1e8", "cluster.overlap=false")
    factor = {"ring": 1, "tree": 2}[collective]
    assert run.images_per_second == pytest.approx(64 / (1 + factor * 1.02228128))


def test_overlap_hides_all_but_the_last_bucket():
    """102.2 MB at 1 GB/s fit into backward, two thirds of a second; the last bucket does not."""
    settings = ("workers=2", "workload=resnet50", "scheme.collective=ring")
    run = predicted(*settings, "cluster.node_link.bandwidth=1e9")
    seconds = 64 / run.images_per_second - 1
    assert 0 < seconds < 0.027
    alone = predicted(*settings, "cluster.node_link.bandwidth=1e9", "cluster.overlap=false")
    assert 64 / alone.images_per_second - 1 == pytest.approx(0.102228128)
