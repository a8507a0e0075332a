"""The wire between real processes: nothing is lost, rounded or put in another place."""

import pytest
import torch.distributed as dist

from paceline.exchange import process_group
from paceline.exchange.process_group import Division, local_rank, shard_index, worker_index
from paceline.exchange.shard import round_robin, segments, shard_bounds, turns
from tests.exchange.talking import FIRST, NUM_WEIGHTS, SECOND, TEXT, WIRES
from tests.launching import launch

THIRDS = [turn / 3 for turn in range(NUM_WEIGHTS)]


@pytest.fixture(scope="module", params=WIRES)
def talk(request, tmp_path_factory):
    """One worker and three servers, of which server 0 has 2 weights, 1 has 2 and 2 has 3."""
    folder = tmp_path_factory.mktemp("talk")
    target = "tests.exchange.talking:one_worker"
    arguments = (3, WIRES[request.param])
    worker, *servers = launch(target, arguments, workers=1, servers=3, log_folder=folder)
    return worker, servers


def test_what_servers_send_arrives_in_order_and_exactly(talk):
    """Versions are integers, and server 0 alone says whether to go on."""
    worker, servers = talk
    assert worker["pulled"] == [THIRDS, [-third for third in THIRDS]]
    assert worker["versions"] == [[first + n for n in range(3)] for first in (FIRST, SECOND)]
    assert worker["proceed"] == [True, False]
    assert servers[0]["text"] == TEXT


def test_what_a_worker_sends_arrives_in_order_and_exactly(talk):
    """Statistics of BatchNorm go to server 0 alone; at last the worker leaves."""
    _, servers = talk
    gradient = [value for server in servers for value in server["gradient"]]
    assert gradient == [turn / 7 for turn in range(NUM_WEIGHTS)]
    assert [len(server["gradient"]) for server in servers] == [2, 2, 3]
    assert [server["statistics"] for server in servers] == [[0.1, 0.2], [], []]
    assert [server["received"] for server in servers] == [
        [(0, FIRST + n, True), (0, SECOND + n, False)] for n in range(3)
    ]


def test_bytes_are_those_of_bodies(talk):
    worker, servers = talk
    assert worker["bytes"] == (8 * (7 + 2), 2 * 8 * 7)
    assert [server["bytes"] for server in servers] == [(32, 32), (32, 16), (48, 24)]


@pytest.mark.parametrize("wire", WIRES)
def test_a_server_answers_whoever_pushes_and_keeps_pushes_apart(wire, tmp_path):
    target = "tests.exchange.talking:two_workers"
    first, second, server = launch(
        target, (WIRES[wire],), workers=2, servers=1, log_folder=tmp_path
    )
    assert server == {
        "order": [(1, True), (1, False), (0, True), (0, False)],
        "kept": [[1.0] * 3, [2.0] * 3],
    }
    assert (second, first) == ([2.0] * 3, [3.0] * 3)


def test_a_server_goes_on_while_a_worker_does_not_read_its_answer(tmp_path):
    """What the worker reads later are the weights as they were, not as they are by then."""
    target = "tests.exchange.talking:slow_reader"
    found = launch(target, ("another node",), workers=2, servers=1, log_folder=tmp_path)
    assert found == [([0.0, 0.0], [0]), ([2.0, 2.0], [2]), 2]


def test_a_server_answers_while_the_next_one_is_sent_to(tmp_path):
    """Server 1 takes its push when the answer of server 0 has left, which no connection holds."""
    target = "tests.exchange.talking:crossing"
    found = launch(target, ("another node",), workers=1, servers=2, log_folder=tmp_path)
    assert found == [[0.0, 0.0, 3.0, 3.0], None, None]


def test_every_run_has_a_token_of_its_own(tmp_path):
    target = "tests.exchange.talking:tokens"
    runs = [launch(target, (), workers=2, servers=1, log_folder=tmp_path) for _ in range(2)]
    assert [len(set(run)) for run in runs] == [1, 1]
    assert runs[0] != runs[1]
    assert len(runs[0][0]) == 32


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


@pytest.mark.parametrize(
    ("environment", "found"),
    [({"RANK": "5", "LOCAL_RANK": "1"}, 1), ({"RANK": "5"}, 5), ({}, 0)],
)
def test_the_accelerator_of_a_process_is_that_of_its_local_rank(environment, found, monkeypatch):
    """Of eight workers on two machines, the sixth is the second of its machine."""
    for name in ("RANK", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert local_rank() == found


@pytest.mark.parametrize("shards", [None, 2, 4])
def test_ranks_are_dealt_to_workers_one_after_the_other(shards, monkeypatch):
    division = Division(shards, None, None, None) if shards else None
    monkeypatch.setattr(process_group, "_division", division)
    places = []
    for rank in range(8):
        monkeypatch.setattr(dist, "get_rank", lambda rank=rank: rank)
        places.append((worker_index(), shard_index()))
    size = shards or 1
    assert places == [(worker, shard) for worker in range(8 // size) for shard in range(size)]
