"""Places of split workers' processes and the time of their messages, by hand."""

import math

import pytest

from paceline.errors import SettingError
from paceline.exchange.collectives import collective
from paceline.timing.profile import (
    ClusterProfile,
    Link,
    check_places,
    of_first_processes,
    of_like_processes,
    seconds_inside,
)
from paceline.timing.split_plan import (
    ShardMessages,
    SplitStep,
    all_gathered,
    all_reduced,
    swapped,
    with_first,
)

INSIDE, BETWEEN = Link(0.5, 100), Link(2, 10)


def profile(room, **more):
    return ClusterProfile(BETWEEN, INSIDE, room, 0, math.inf, **more)


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


@pytest.mark.parametrize("messages", [all_gathered(800, 4), swapped(800, 4)])
def test_in_a_node_each_process_has_its_link(messages):
    assert seconds_inside(messages, profile(4), 2, 4) == pytest.approx(3 * 0.5 + 600 / 100)
    assert seconds_inside(messages, profile(None), 2, 4) == pytest.approx(3 * 0.5 + 600 / 100)


@pytest.mark.parametrize(
    ("room", "messages", "times"),
    [
        (1, all_gathered(800, 4), 1),
        (1, swapped(800, 4), 1),
        (2, all_gathered(800, 4), 1),  # one process of a node sends out of it
        (2, swapped(800, 4), 2 * 2 / 3),  # two of a node do, each to two of three
    ],
)
def test_a_worker_on_several_nodes_sends_by_their_links(room, messages, times):
    seconds = seconds_inside(messages, profile(room), 2, 4)
    assert seconds == pytest.approx(3 * 2 + times * 600 / 10)


def test_a_bus_carries_one_message_at_a_time():
    """Two workers of two processes: four send 400 bytes each."""
    bus = profile(None, node_cores=1)
    assert seconds_inside(all_gathered(800, 2), bus, 2, 2) == pytest.approx(4 * 400 / 100)
    assert seconds_inside(with_first(800, 2), bus, 2, 2) == pytest.approx(2 * 800 / 100)


@pytest.mark.parametrize("shards", [2, 4])
def test_a_sum_takes_what_an_all_reduce_takes(shards):
    """By the links, and by a bus."""
    for each in (profile(None), profile(1), profile(None, node_cores=1)):
        found = seconds_inside(all_reduced(8000, shards), each, 1, shards)
        assert found == pytest.approx(collective("native").seconds(8000, shards, each))


def test_firsts_and_those_alike_see_their_part_of_a_node():
    """Nodes of four: two workers of two processes on each."""
    cluster = profile(4, node_cores=8, message_seconds={2: 1.0, 4: 3.0})
    assert of_first_processes(cluster, 2).workers_per_node == 2
    assert of_first_processes(cluster, 8).workers_per_node == 1
    assert of_first_processes(profile(None), 2).workers_per_node is None
    alike = of_like_processes(cluster, 4, 2)
    assert (alike.workers_per_node, alike.link.bandwidth, alike.node_cores) == (2, 5, 4)
    assert alike.core_seconds(1, 0, alike.largest_node(4)) == 3 / 4  # four processes are at it


def test_workers_that_fill_nodes_unevenly_are_refused():
    for room, workers, shards in ((4, 1, 3), (4, 8, 2), (2, 3, 4), (None, 5, 3)):
        check_places(profile(room), workers, shards)
    with pytest.raises(SettingError, match="3 processes of each worker do not divide nodes of 4"):
        check_places(profile(4), 2, 3)
