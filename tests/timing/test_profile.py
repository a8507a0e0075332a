"""A modelled cluster: nodes, what its accelerators share, and messages inside split workers."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from paceline.errors import SettingError
from paceline.exchange.collectives import COLLECTIVES, collective
from paceline.prediction.predict import predict
from paceline.record.point import Point
from paceline.study.compose import composed
from paceline.timing.profile import (
    ClusterProfile,
    Link,
    SharedCores,
    check_places,
    of_first_processes,
    of_like_processes,
    seconds_inside,
    shuffle_seconds,
)
from paceline.timing.split_plan import (
    ShardMessages,
    SplitStep,
    all_gathered,
    all_reduced,
    swapped,
    with_first,
)
from tests.tiny import REPOSITORY

SETTINGS = {
    "workers_per_node": 4,
    "node_cores": 16,
    "link": {"latency": 1e-5, "bandwidth": 1_000_000},
    "node_link": {"latency": 0, "bandwidth": None},
    "server_seconds": 0.5,
    "server_bandwidth": None,
}


def test_workers_fill_node_after_node():
    profile = ClusterProfile(**SETTINGS)
    assert [profile.num_nodes(workers) for workers in (1, 4, 5, 8, 9)] == [1, 1, 2, 2, 3]
    assert [profile.node_of(worker) for worker in (0, 3, 4, 8)] == [0, 0, 1, 2]
    assert [profile.largest_node(workers) for workers in (1, 3, 4, 9)] == [1, 3, 4, 4]
    machine = ClusterProfile(**{**SETTINGS, "workers_per_node": None})
    assert (machine.num_nodes(100), machine.node_of(99)) == (1, 0)
    assert (machine.one_machine, profile.one_machine) == (True, False)
    assert (profile.node_link, profile.server_bandwidth) == (Link(0, math.inf), math.inf)


def test_workers_meet_on_nodes_and_between_them():
    link, node_link = Link(1, 2), Link(3, 4)
    profile = ClusterProfile(link, node_link, 4, 0, 1)
    assert profile.levels(1) == []
    assert profile.levels(3) == [(node_link, 3)]
    assert profile.levels(9) == [(node_link, 4), (link, 3)]
    assert ClusterProfile(link, node_link, 1, 0, 1).levels(9) == [(link, 9)]
    assert ClusterProfile(link, node_link, None, 0, 1).levels(9) == [(node_link, 9)]


CORES = SharedCores(step_seconds={8: 1.0, 32: 3.0}, speeds={1: 1, 2: 1.8, 4: 1.4}, ddp_seconds=0)


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


def test_bytes_that_flow_the_other_way_take_as_long():
    """Links are full-duplex, so that a matrix of bytes and its transpose take equal time."""
    rng = np.random.default_rng(0)
    for workers_per_node, node_cores in itertools.product((1, 2, 3, None), (None, 1)):
        times = set()
        for _ in range(8):
            matrix = rng.integers(0, 200, (4, 4)) * (1 - np.eye(4, dtype=int))
            matrix[:, rng.integers(4)] *= 5  # one worker receives much more than it sends
            one, other = (
                shuffle_seconds(each, profile(workers_per_node, node_cores=node_cores))
                for each in (matrix, matrix.T)
            )
            assert one == other
            times.add(one)
        assert len(times) == 8


OWN_LINKS = ("unshared", "nvswitch", "nvlink", "pcie_switch")
NUM_BYTES = 960


@pytest.mark.parametrize("workers_per_node", [None, 4])
def test_a_bus_passes_all_messages_of_a_collective_one_by_one(workers_per_node):
    for name in COLLECTIVES:
        for workers in (2, 4, 8):
            bus = ClusterProfile(
                Link(0, 50), Link(0, 100), workers_per_node, 0, math.inf, topology="pcie_host"
            )
            of_node = bus.largest_node(workers)
            _, vectors = collective(name).node_messages(workers, of_node)
            alone = collective(name).link_seconds(NUM_BYTES, workers, bus)
            assert collective(name).seconds(NUM_BYTES, workers, bus) == pytest.approx(
                max(alone, vectors * NUM_BYTES / 100)
            ), (name, workers)
            for topology in OWN_LINKS:
                own = replace(bus, topology=topology)
                assert collective(name).seconds(NUM_BYTES, workers, own) == alone, name


def test_a_machine_of_unknown_topology_is_refused_once_several_accelerators_exchange():
    known = composed(["cluster=titan", "workload=nin", "data=synthetic"], REPOSITORY)
    message = r"^cluster\.topology: how the 2 accelerators .* nvswitch, .*node_link\.bandwidth"

    def point(workers, **settings):
        cluster = {**known.values["cluster"], **settings}
        return Point.of(known.replaced(workers=workers, cluster=cluster))

    assert point(2).cluster.topology is None  # one accelerator in a node
    point(1, workers_per_node=2)
    point(2, workers_per_node=2, node_cores=1)
    point(2, workers_per_node=2, topology="nvlink")
    with pytest.raises(SettingError, match=message):
        point(2, workers_per_node=2)
    with pytest.raises(SettingError, match=r"^cluster\.topology: .*'pcie_host'.*'ring'"):
        point(1, topology="ring")


def test_the_software_says_whether_gradients_are_reduced_during_backward():
    during = {"ddp", "horovod", "mxnet", True}
    for software in (*during, "tensorflow1", "caffe", False):
        assert ClusterProfile(**SETTINGS, overlap=software).overlap is (software in during)
    for wrong in ("pytorch", 1, None):
        with pytest.raises(SettingError, match=r"^cluster\.overlap: ") as error:
            ClusterProfile(**SETTINGS, overlap=wrong)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("scheme", "placement"),
    [
        ("sync_parameter_server scheme.servers=2", "null"),
        ("sync_parameter_server scheme.servers=1 scheme.group_size=2", "4"),
        ("async_parameter_server scheme.servers=2", "4"),
    ],
)
def test_messages_to_servers_and_between_workers_wait_for_the_bus(scheme, placement):
    """Steps take no time; accelerators with links of their own are never as slow."""
    words = f"cluster=virtual workload=sized workload.num_bytes=1000 scheme={scheme} workers=4 "
    words += "cluster.step_seconds=1e-9 cluster.node_link.bandwidth=1000 "
    words += f"cluster.workers_per_node={placement} cluster.server_placement=beside_workers"
    on_a_bus, apart = (
        predict(composed([*words.split(), f"cluster.topology={each}"], REPOSITORY), 8).run
        for each in ("pcie_host", "nvswitch")
    )
    assert on_a_bus.images_per_second < 0.8 * apart.images_per_second


KINDS = (all_gathered, swapped)


def of_links(room, **more):
    return ClusterProfile(Link(2, 10), Link(0.5, 100), room, 0, math.inf, **more)


def test_messages_by_hand():
    """120 bytes of three processes: parts of 40, in a ring and back, from each to each."""
    assert all_gathered(120, 3) == ShardMessages(2, 80, 3)
    assert all_reduced(120, 3) == ShardMessages(4, 160, 3)
    assert swapped(120, 3) == ShardMessages(2, 80, 3, to_each=True)
    assert with_first(120, 3) == ShardMessages(2, 240, 1)


def test_a_gradient_comes_to_the_first_process_and_weights_go_back():
    """Of 2 processes: 10 weights by images, 2 x 6 in slices, 3 in both; one number says go on."""
    step = SplitStep(2, [all_gathered(8, 2)], 8, summed=10, sliced=6, repeated=3, statistics=4)
    assert step.num_weights == 25
    assert step.activation_bytes == 8
    assert step.to_first == [ShardMessages(1, 8 * 20, 1)]
    assert step.from_first == [ShardMessages(1, 8 * 20, 1)]


def test_a_sum_takes_what_an_all_reduce_takes():
    """By the links, and by a bus."""
    clusters = of_links(None), of_links(1), of_links(None, node_cores=1)
    for each, shards in itertools.product(clusters, (2, 4)):
        found = seconds_inside(all_reduced(8000, shards), each, 1, shards)
        assert found == pytest.approx(collective("native").seconds(8000, shards, each))


def test_firsts_and_those_alike_see_their_part_of_a_node():
    """Nodes of four: two workers of two processes on each."""
    cluster = of_links(4, node_cores=8, message_seconds={2: 1.0, 4: 3.0})
    assert of_first_processes(cluster, 2).workers_per_node == 2
    assert of_first_processes(cluster, 8).workers_per_node == 1
    assert of_first_processes(of_links(None), 2).workers_per_node is None
    alike = of_like_processes(cluster, 4, 2)
    assert (alike.workers_per_node, alike.link.bandwidth, alike.node_cores) == (2, 5, 4)
    assert alike.core_seconds(1, 0, alike.largest_node(4)) == 3 / 4  # four processes are at it


@pytest.mark.parametrize(
    ("of_profile", "shards", "messages", "seconds"),
    [
        # in a node each process has its link
        *(((room, {}), 4, kind(800, 4), 1.5 + 6) for room in (4, None) for kind in KINDS),
        # on several nodes a worker sends by theirs: one process of a node sends out of it, or two
        # of a node do, each to two of three
        *(((1, {}), 4, kind(800, 4), 6 + 60) for kind in KINDS),
        ((2, {}), 4, all_gathered(800, 4), 6 + 60),
        ((2, {}), 4, swapped(800, 4), 6 + 60 * 2 * 2 / 3),
        # a bus carries one message at a time: four processes send 400 bytes each, two 800
        ((None, {"node_cores": 1}), 2, all_gathered(800, 2), 16),
        ((None, {"node_cores": 1}), 2, with_first(800, 2), 16),
    ],
)
def test_messages_of_two_split_workers_take_their_links(of_profile, shards, messages, seconds):
    room, more = of_profile
    found = seconds_inside(messages, of_links(room, **more), 2, shards)
    assert found == pytest.approx(seconds)


def test_shared_cores_are_linear_between_what_was_measured():
    """And stay as fast with more processes; a step goes by its batch."""
    speeds = [CORES.speed(processes) for processes in (1, 2, 3, 4, 9)]
    assert speeds == pytest.approx([1, 1.8, 1.6, 1.4, 1.4])
    assert [CORES.mean_step_seconds(size) for size in (8, 20, 64)] == pytest.approx([1, 2, 6])


@pytest.mark.parametrize(
    ("setting", "wrong"),
    [
        ("shared_cores.speeds", lambda: replace(CORES, speeds={2: 1.8})),
        ("shared_cores.speeds", lambda: replace(CORES, speeds={1: 2.0})),
        ("shared_cores.step_seconds", lambda: replace(CORES, step_seconds={})),
        ("link.bandwidth", lambda: ClusterProfile(**{**SETTINGS, "link": {"latency": 0}})),
        ("shards", lambda: check_places(of_links(4), 2, 3)),
    ],
)
def test_what_cannot_be_is_refused_by_its_name(setting, wrong):
    with pytest.raises(SettingError) as refused:
        wrong()
    of_model = setting == "shards"
    assert refused.value.setting.startswith(f"{'model' if of_model else 'cluster'}.{setting}")
    for room, workers, shards in ((4, 1, 3), (4, 8, 2), (2, 3, 4), (None, 5, 3)):
        check_places(of_links(room), workers, shards)
