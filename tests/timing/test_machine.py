"""What accelerators of one machine share, and when its software reduces gradients."""

import math
from dataclasses import replace

import pytest

from paceline.errors import SettingError
from paceline.exchange.collectives import COLLECTIVES, collective
from paceline.prediction.predict import predict
from paceline.record.point import Point
from paceline.study.compose import composed
from paceline.timing.profile import ClusterProfile, Link
from tests.tiny import REPOSITORY

INSIDE, BETWEEN = Link(0, 100), Link(0, 50)
OWN_LINKS = ("unshared", "nvswitch", "nvlink", "pcie_switch")
NUM_BYTES = 960


def profile(topology, workers_per_node=None):
    return ClusterProfile(BETWEEN, INSIDE, workers_per_node, 0, math.inf, topology=topology)


def point_of(*settings):
    return Point.of(composed([*settings, "data=synthetic"], REPOSITORY))


@pytest.mark.parametrize("workers_per_node", [None, 4])
def test_a_bus_passes_all_messages_of_a_collective_one_by_one(workers_per_node):
    for name in COLLECTIVES:
        for workers in (2, 4, 8):
            bus = profile("pcie_host", workers_per_node)
            of_node = bus.largest_node(workers)
            _, vectors = collective(name).node_messages(workers, of_node)
            alone = collective(name).link_seconds(NUM_BYTES, workers, bus)
            assert collective(name).seconds(NUM_BYTES, workers, bus) == pytest.approx(
                max(alone, vectors * NUM_BYTES / INSIDE.bandwidth)
            ), (name, workers)
            for topology in OWN_LINKS:
                own = replace(bus, topology=topology)
                assert collective(name).seconds(NUM_BYTES, workers, own) == alone, name


def test_a_ring_of_m_accelerators_takes_m_times_as_long_over_a_bus():
    """2 (m-1) n bytes pass, where each link passes 2 (m-1) n / m."""
    for workers in (2, 8, 16):
        seconds = [
            collective("ring").seconds(NUM_BYTES, workers, profile(topology))
            for topology in ("pcie_host", "nvswitch")
        ]
        assert seconds[0] == pytest.approx(workers * seconds[1])


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
        assert replace(profile("nvlink"), overlap=software).overlap is (software in during)
    for wrong in ("pytorch", 1, None):
        with pytest.raises(SettingError, match=r"^cluster\.overlap: ") as error:
            replace(profile("nvlink"), overlap=wrong)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("scheme", "placement"),
    [
        (("scheme=sync_parameter_server", "scheme.servers=2"), "null"),
        (("scheme=sync_parameter_server", "scheme.servers=1", "scheme.group_size=2"), "4"),
        (("scheme=async_parameter_server", "scheme.servers=2"), "4"),
    ],
)
def test_messages_to_servers_and_between_workers_wait_for_the_bus(scheme, placement):
    """Steps take no time, and all messages of the one node pass its bus: it is never faster than
    their bytes, and accelerators with own links are.
    """
    settings = ("cluster=virtual", "workload=sized", "workload.num_bytes=1000", *scheme)
    settings += ("workers=4", "cluster.step_seconds=1e-9", "cluster.node_link.bandwidth=1000")
    settings += (f"cluster.workers_per_node={placement}", "cluster.server_placement=beside_workers")
    rates = []
    for topology in ("pcie_host", "nvswitch"):
        found = predict(composed([*settings, f"cluster.topology={topology}"], REPOSITORY), 8)
        rates.append(found.run.images_per_second)
    assert rates[0] < 0.8 * rates[1]
