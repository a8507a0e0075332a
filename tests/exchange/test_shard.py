"""How weights are divided among servers."""

import pytest

from paceline.exchange.shard import round_robin, segments, shard_bounds, turns


@pytest.mark.parametrize("num_weights", [1, 7, 12, 7674])
@pytest.mark.parametrize("servers", [1, 2, 3, 5])
def test_parts_cover_every_weight_once_and_are_equal_within_one(num_weights, servers):
    bounds = shard_bounds(num_weights, servers)
    covered = [weight for first, last in bounds for weight in range(first, last)]
    assert covered == list(range(num_weights))
    sizes = [last - first for first, last in bounds]
    assert len(sizes) == servers
    assert max(sizes) - min(sizes) <= 1


def test_more_servers_than_weights_leave_some_empty():
    assert shard_bounds(2, 4) == [(0, 0), (0, 1), (1, 1), (1, 2)]


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ((0, 10), [(0, 4), (2, 6)]),
        ((0, 3), [(0, 3)]),
        ((3, 6), [(0, 1), (2, 2)]),
        ((4, 10), [(2, 6)]),
        ((5, 5), []),
    ],
)
def test_optimizer_groups_in_a_part(part, expected):
    """Groups of 4, 0 and 6 weights."""
    assert segments([4, 0, 6], *part) == expected


@pytest.mark.parametrize("servers", [1, 2, 3, 8])
def test_at_each_turn_as_many_workers_as_servers_push_to_all_of_them(servers):
    orders = [turns(servers, worker) for worker in range(servers)]
    for each in (*orders, *zip(*orders, strict=True)):
        assert sorted(each) == list(range(servers))


def test_tensors_go_to_the_servers_in_turn():
    assert [list(part) for part in round_robin(5, 3)] == [[0, 3], [1, 4], [2]]
    assert [list(part) for part in round_robin(2, 3)] == [[0], [1], []]
