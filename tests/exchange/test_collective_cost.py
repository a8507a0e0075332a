"""Costs of an all-reduce, by hand."""

import itertools
import math
from dataclasses import replace

import pytest

from paceline.errors import SettingError
from paceline.exchange.collective.cost import COLLECTIVES, allreduce_seconds
from paceline.timing.profile import ClusterProfile, Link

FREE = Link(0, math.inf)


def one_machine(latency=0.0, bandwidth=math.inf) -> ClusterProfile:
    return ClusterProfile(FREE, Link(latency, bandwidth), None, 0, math.inf)


def nodes_of(workers: int, link: Link, node_link: Link) -> ClusterProfile:
    return ClusterProfile(link, node_link, workers, 0, math.inf)


@pytest.mark.parametrize(
    ("collective", "workers", "seconds"),
    [
        ("ring", 2, 1 * 8 + 2),
        ("ring", 8, 1.75 * 8 + 14),
        ("native", 8, 1.75 * 8 + 14),
        ("tree", 2, 2 * 8 + 2),
        ("tree", 8, 6 * 8 + 6),
        ("tree", 9, 8 * 8 + 8),
        ("multicolor", 2, 1 * 8 + 2),
        ("multicolor", 4, 1.5 * 8 + 2),
        ("multicolor", 6, 5 / 3 * 8 + 4),  # 4 trees would share inner members: 3
        ("multicolor", 8, 1.75 * 8 + 4),
        ("multicolor", 16, 2 * 8 + 4),
        ("multicolor", 64, 2 * 8 + 6),
        ("parameter_server", 3, 3 * 8 + 2),
        ("hierarchical", 8, 6 * 8 + 6),
    ],
)
def test_on_one_machine(collective, workers, seconds):
    """800 bytes at 100 bytes/s, a second of latency."""
    found = allreduce_seconds(collective, 800, workers, one_machine(1, 100))
    assert found == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize(
    ("collective", "seconds"),
    [
        ("ring", 14 * (0.5 + 1)),  # 14 rounds of 100 bytes; the hop between nodes is slower
        ("tree", 2 * (2 * (0.25 + 1) + 0.5 + 8)),  # two levels inside, one between the nodes
        ("multicolor", 2 * 0.25 + 2 * 0.5 + 8),  # between: once n; inside, 1.5 n at 8 times that
        ("parameter_server", 8 * 8 + 1),
        ("hierarchical", 4 * (0.25 + 1) + 2 * (0.5 + 4)),  # trees of 4 inside, a ring of two nodes
    ],
)
def test_two_nodes_of_four(collective, seconds):
    """800 bytes; 100 bytes/s between nodes, 800 inside."""
    profile = nodes_of(4, Link(0.5, 100), Link(0.25, 800))
    assert allreduce_seconds(collective, 800, 8, profile) == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize(
    ("collective", "messages", "sent"),
    [
        ("ring", 8 * 14, 14),  # times n
        ("native", 2 * 8 * 14, 14),
        ("tree", 14, 14),
        ("multicolor", 4 * 14, 14),
        ("parameter_server", 16, 16),
        ("hierarchical", 14, 14),
    ],
)
def test_two_cores_pass_all_messages_of_a_machine(collective, messages, sent):
    """800 bytes over 8 workers; each message takes a core a second, and one for 100 bytes."""
    profile = replace(one_machine(1, 100), node_cores=2)
    found = allreduce_seconds(collective, 800, 8, profile)
    assert found == pytest.approx((messages + 8 * sent) / 2, rel=1e-12)


def test_all_reduces_may_go_another_way_inside_a_node():
    profile = replace(one_machine(9, 9), allreduce_link=Link(1, 100))
    assert allreduce_seconds("ring", 800, 8, profile) == 1.75 * 8 + 14


def test_more_cores_than_messages_change_nothing():
    free, enough = one_machine(1, 100), replace(one_machine(1, 100), node_cores=1000)
    for collective in COLLECTIVES:
        costs = {allreduce_seconds(collective, 800, 8, each) for each in (free, enough)}
        assert len(costs) == 1


def test_cores_pass_the_messages_of_their_own_node():
    """A ring over two nodes of two: each worker sends 6 messages of 200 bytes."""
    profile = replace(nodes_of(2, FREE, Link(1, 100)), node_cores=1)
    assert allreduce_seconds("ring", 800, 4, profile) == pytest.approx(2 * 6 * (1 + 2))


def test_a_slow_link_inside_the_nodes_decides_too():
    profile = nodes_of(2, FREE, Link(0, 100))
    assert allreduce_seconds("ring", 800, 4, profile) == pytest.approx(6 * 2)
    assert allreduce_seconds("multicolor", 800, 4, profile) == pytest.approx(8)


@pytest.mark.parametrize("collective", [name for name in COLLECTIVES if name != "hierarchical"])
def test_nodes_of_one_worker_have_no_inside(collective):
    """The same as one machine whose workers are linked like the nodes."""
    between = nodes_of(1, Link(0.5, 100), Link(9, 1))
    inside = one_machine(0.5, 100)
    costs = [allreduce_seconds(collective, 800, 6, profile) for profile in (between, inside)]
    assert costs[0] == costs[1]


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_one_worker_waits_for_nobody(collective):
    assert allreduce_seconds(collective, 800, 1, one_machine(1, 100)) == 0


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_a_free_network_costs_nothing(collective):
    assert allreduce_seconds(collective, 800, 300, one_machine()) == 0


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize(
    "profile",
    [
        one_machine(1, 100),
        nodes_of(1, Link(1, 100), FREE),
        nodes_of(4, Link(1, 100), Link(0.1, 900)),
        nodes_of(3, Link(0.1, 900), Link(1, 100)),
    ],
)
def test_more_workers_or_bytes_never_take_less_time(collective, profile):
    counts = (1, 4, 16, 64) if collective == "multicolor" else range(1, 70)  # of 4 colors
    by_workers = [allreduce_seconds(collective, 800, workers, profile) for workers in counts]
    by_bytes = [allreduce_seconds(collective, size, 9, profile) for size in range(0, 800, 80)]
    for costs in (by_workers, by_bytes):
        assert all(less <= more for less, more in itertools.pairwise(costs))


def test_a_collective_that_is_not_known_is_named():
    with pytest.raises(SettingError, match=r"scheme.collective: there is no star; .* ring, tree"):
        allreduce_seconds("star", 8, 2, one_machine())


def test_firecaffe_tree_as_published():
    """Figure 5 of arXiv:1511.00175, digitised: updates/s of communication alone, 30 MB of weights,
    one GPU a node; one bandwidth of 5.2 GB/s explains it to within 25 %.
    """
    published = {2: 67.8, 4: 42.0, 8: 35.6, 16: 22.4, 32: 16.1, 64: 14.1, 128: 14.1}
    profile = nodes_of(1, Link(0, 5.2e9), FREE)
    for workers, updates_per_second in published.items():
        seconds = allreduce_seconds("tree", 30_000_000, workers, profile)
        assert seconds == pytest.approx(1 / updates_per_second, rel=0.25)
