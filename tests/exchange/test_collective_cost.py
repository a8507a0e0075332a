"""Costs of an all-reduce, by hand."""

import itertools
import math
from dataclasses import replace

import pytest

from paceline.exchange.collectives import COLLECTIVES, collective
from paceline.timing.profile import ClusterProfile, Link

FREE = Link(0, math.inf)
every_collective = pytest.mark.parametrize("name", COLLECTIVES)


def one_machine(latency=0.0, bandwidth=math.inf) -> ClusterProfile:
    return ClusterProfile(FREE, Link(latency, bandwidth), None, 0, math.inf)


def nodes_of(workers: int, link: Link, node_link: Link) -> ClusterProfile:
    return ClusterProfile(link, node_link, workers, 0, math.inf)


ONE = one_machine(1, 100)
FOURS = nodes_of(4, Link(0.5, 100), Link(0.25, 800))
TWOS = nodes_of(2, FREE, Link(0, 100))


@pytest.mark.parametrize(
    ("profile", "name", "workers", "seconds"),
    [
        (ONE, "ring", 2, 1 * 8 + 2),
        (ONE, "ring", 8, 1.75 * 8 + 14),
        (ONE, "native", 8, 1.75 * 8 + 14),
        (ONE, "tree", 2, 2 * 8 + 2),
        (ONE, "tree", 8, 6 * 8 + 6),
        (ONE, "tree", 9, 8 * 8 + 8),
        (ONE, "multicolor", 2, 1 * 8 + 2),
        (ONE, "multicolor", 4, 1.5 * 8 + 2),
        (ONE, "multicolor", 6, 5 / 3 * 8 + 4),  # 4 trees would share inner members: 3
        (ONE, "multicolor", 8, 1.75 * 8 + 4),
        (ONE, "multicolor", 16, 2 * 8 + 4),
        (ONE, "multicolor", 64, 2 * 8 + 6),
        (ONE, "parameter_server", 3, 2 * (2 * 8 + 1)),
        (replace(one_machine(9, 9), allreduce_link=Link(1, 100)), "ring", 8, 1.75 * 8 + 14),
        # two full nodes
        (FOURS, "ring", 8, 14 * (0.5 + 1)),  # of 100 bytes; the hop between nodes is slower
        (FOURS, "tree", 8, 2 * (2 * (0.25 + 1) + 0.5 + 8)),  # two levels inside, one between
        (FOURS, "multicolor", 8, 2 * 0.25 + 2 * 0.5 + 8),  # n, and 1.5 n inside
        (FOURS, "parameter_server", 8, 2 * (4 * 8 + 0.5)),  # those of the other node, and back
        # two workers on the second node
        (FOURS, "ring", 6, 10 * (0.5 + 800 / 6 / 100)),
        (FOURS, "tree", 6, 2 * (2 * (0.25 + 1) + 0.5 + 8)),
        (FOURS, "parameter_server", 6, 2 * (2 * 8 + 0.5)),
        # a slow link inside the nodes
        (TWOS, "ring", 4, 6 * 2),
        (TWOS, "multicolor", 4, 8),
    ],
)
def test_800_bytes(profile, name, workers, seconds):
    """At 100 bytes/s on one machine or between nodes, with a second or a half of latency."""
    found = collective(name).seconds(800, workers, profile)
    assert found == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize(("length", "pieces"), [(1, 1), (4096, 1), (2 * 4096, 2), (10**6, 24)])
def test_sums_leave_the_server_while_other_pieces_arrive(length, pieces):
    """Those of 4 other workers at 100 bytes/s, in one round more than there are pieces."""
    found = collective("parameter_server").seconds(4 * length, 5, one_machine(1, 100))
    assert found == pytest.approx((pieces + 1) * (1 + 4 * 4 * length / pieces / 100), rel=1e-12)
    schedule = collective("parameter_server").schedule(5, length)
    assert len(schedule) == pieces + 1


@every_collective
@pytest.mark.parametrize(
    "profile",
    [
        ONE,
        nodes_of(1, Link(1, 100), FREE),
        nodes_of(4, Link(1, 100), Link(0.1, 900)),
        nodes_of(3, Link(0.1, 900), Link(1, 100)),
    ],
)
def test_more_workers_or_bytes_never_take_less_time(name, profile):
    counts = (1, 4, 16, 64) if name == "multicolor" else range(1, 70)  # of 4 colors
    by_workers = [collective(name).seconds(800, workers, profile) for workers in counts]
    by_bytes = [collective(name).seconds(size, 9, profile) for size in range(0, 800, 80)]
    for costs in (by_workers, by_bytes):
        assert all(less <= more for less, more in itertools.pairwise(costs))


def test_firecaffe_tree_as_published():
    """Figure 5 of arXiv:1511.00175, digitised: updates/s of communication alone, 30 MB of weights,
    one GPU a node; one bandwidth of 5.2 GB/s explains it to within 25 %.
    """
    published = {2: 67.8, 4: 42.0, 8: 35.6, 16: 22.4, 32: 16.1, 64: 14.1, 128: 14.1}
    profile = nodes_of(1, Link(0, 5.2e9), FREE)
    for workers, updates_per_second in published.items():
        seconds = collective("tree").seconds(30_000_000, workers, profile)
        assert seconds == pytest.approx(1 / updates_per_second, rel=0.25)


@pytest.mark.parametrize(
    ("name", "messages", "sent"),
    [
        ("ring", 8 * 14, 14),  # times n
        ("native", 2 * 8 * 14, 14),
        ("tree", 14, 14),
        ("multicolor", 4 * 14, 14),
        ("parameter_server", 14, 14),
    ],
)
def test_two_cores_pass_all_messages_of_a_machine(name, messages, sent):
    """800 bytes over 8 workers; each message takes a core ten seconds, and one for 100 bytes."""
    profile = replace(one_machine(0, 100), node_cores=2, message_seconds={1: 10})
    found = collective(name).seconds(800, 8, profile)
    assert found == pytest.approx((10 * messages + 8 * sent) / 2, rel=1e-12)
    enough = replace(ONE, node_cores=1000)
    assert collective(name).seconds(800, 8, enough) == collective(name).seconds(800, 8, ONE)


def test_a_message_costs_a_core_of_its_node_by_the_number_of_workers():
    """Half of the way from 4 to 8 workers 3 s, and beyond them as the nearest. In a ring over two
    nodes of two each worker sends 6 messages of 200 bytes.
    """
    profile = replace(one_machine(0, math.inf), node_cores=2, message_seconds={4: 2, 8: 4})
    for workers, each in ((2, 2), (4, 2), (6, 3), (8, 4), (16, 4)):
        messages = 2 * workers * 2 * (workers - 1)
        assert collective("native").seconds(800, workers, profile) == messages * each / 2
    ring = replace(TWOS, node_cores=1, message_seconds={1: 1})
    assert collective("ring").seconds(800, 4, ring) == pytest.approx(2 * 6 * (1 + 2))


@every_collective
def test_what_makes_no_difference(name):
    """Nodes of one worker are as one machine with links like theirs; a node may be full or not; one
    worker costs nothing, nor does a free network.
    """
    by = collective(name)
    between = nodes_of(1, Link(0.5, 100), Link(9, 1))
    assert by.seconds(800, 6, between) == by.seconds(800, 6, one_machine(0.5, 100)) > 0
    for workers in (2, 3, 5):
        full, roomy = (
            replace(nodes_of(size, Link(0.5, 100), Link(0.25, 800)), node_cores=2)
            for size in (workers, 8)
        )
        assert by.seconds(800, workers, full) == by.seconds(800, workers, roomy) > 0
    assert by.seconds(800, 1, ONE) == by.seconds(800, 300, one_machine()) == 0
