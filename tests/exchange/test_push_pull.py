"""The wire between real processes: nothing is lost, rounded or put in another place."""

import itertools
import socket

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.cluster.supervisor import LostWorker
from paceline.exchange import process_group
from paceline.exchange.process_group import Division, local_rank, shard_index, worker_index
from paceline.exchange.shard import round_robin, segments, shard_bounds, turns
from paceline.exchange.wire.connection import HEADER_BYTES, Header, pack
from paceline.exchange.wire.server_wire import ServerEnd
from tests.exchange.talking import FIRST, LARGE, NUM_WEIGHTS, SECOND, TEXT, WIRES
from tests.launching import launch

THIRDS = [turn / 3 for turn in range(NUM_WEIGHTS)]


IN_THREE = [
    *(("two_workers", node) for node in WIRES.values()),
    *(("strangers", node) for node in WIRES.values()),
    ("slow_reader", "another node"),
    ("crossing", "another node"),
]


@pytest.fixture(scope="module")
def of_four(tmp_path_factory):
    """One worker and three servers, of which server 0 has 2 weights, 1 has 2 and 2 has 3."""
    return launched([("one_worker", node) for node in WIRES.values()], 4, tmp_path_factory)


@pytest.fixture(scope="module")
def of_three(tmp_path_factory):
    """By part and node: what each of three processes returned."""
    token, *found = launched(IN_THREE, 3, tmp_path_factory)
    return {"token": token, **dict(zip(IN_THREE, found, strict=True))}


def launched(parts, processes, folders):
    """The tokens of all processes, and what they returned of each part."""
    target, folder = "tests.exchange.talking:talk", folders.mktemp("talk")
    found = launch(target, (parts,), workers=processes, servers=0, log_folder=folder)
    return [list(each) for each in zip(*found, strict=True)]


@pytest.fixture(params=range(len(WIRES)), ids=WIRES)
def talk(request, of_four):
    worker, *servers = of_four[1 + request.param]
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


@pytest.mark.parametrize("node", WIRES.values(), ids=WIRES)
def test_a_server_answers_whoever_pushes_and_keeps_pushes_apart(node, of_three):
    first, second, server = of_three["two_workers", node]
    assert server["order"] == [(1, 0, True), (1, 1, False), (0, 0, True), (0, 3, False)]
    assert server["kept"] == [[1.0] * 2, [2.0] * 2]
    assert (second, first) == ([2.0] * 3, [3.0] * 3)


@pytest.mark.parametrize("node", WIRES.values(), ids=WIRES)
def test_a_stranger_hears_nothing_is_dropped_and_disturbs_nobody(node, of_three):
    """Silent, with a worker's hello and no token, with the token in its place, with wrong ones."""
    heard, nothing, server = of_three["strangers", node]
    assert (heard, nothing) == ([b""] * 5, [])
    told = sorted((worker, proceed) for worker, _, proceed in server["order"])
    assert told == [(0, False), (0, True), (1, False), (1, True)]
    assert (server["weights"], server["kept"]) == ([3.0] * 2, [[1.0] * 2, [2.0] * 2])


def test_a_server_goes_on_while_a_worker_does_not_read_its_answer(of_three):
    """What the worker reads later are the weights as they were, not as they are by then."""
    first, second, server = of_three["slow_reader", "another node"]
    assert (first, second, server["weights"]) == (([0.0] * 2, [0]), ([2.0] * 2, [2]), [2.0] * 2)


def test_a_server_answers_while_the_next_one_is_sent_to(of_three):
    """Server 1 takes its push when the answer of server 0 has left, which no connection holds."""
    assert of_three["crossing", "another node"] == [[0.0, 0.0, 3.0, 3.0], None, None]


def test_every_run_has_a_token_of_its_own(of_three, of_four):
    first, second = of_three["token"], of_four[0]
    assert (len(set(first)), len(set(second)), len(first[0])) == (1, 1, 32)
    assert first[0] != second[0]


@given(st.integers(0, 8000), st.integers(1, 9))
@settings(derandomize=True, database=None, deadline=None)
def test_parts_cover_every_weight_once_and_are_equal_within_one(num_weights, servers):
    bounds = shard_bounds(num_weights, servers)
    assert [bounds[0][0], bounds[-1][1], len(bounds)] == [0, num_weights, servers]
    assert all(one[1] == other[0] for one, other in itertools.pairwise(bounds))
    sizes = [last - first for first, last in bounds]
    assert 0 <= max(sizes) - min(sizes) <= 1


def test_optimizer_groups_in_a_part():
    """Groups of 4, 0 and 6 weights."""
    for part, expected in (
        ((0, 10), [(0, 4), (2, 6)]),
        ((0, 3), [(0, 3)]),
        ((3, 6), [(0, 1), (2, 2)]),
        ((4, 10), [(2, 6)]),
        ((5, 5), []),
    ):
        assert segments([4, 0, 6], *part) == expected, part


def test_at_each_turn_as_many_workers_as_servers_push_to_all_of_them():
    for servers in (1, 2, 3, 8):
        orders = [turns(servers, worker) for worker in range(servers)]
        for each in (*orders, *zip(*orders, strict=True)):
            assert sorted(each) == list(range(servers))
    assert [list(part) for part in round_robin(5, 3)] == [[0, 3], [1, 4], [2]]  # whole tensors
    assert [list(part) for part in round_robin(2, 3)] == [[0], [1], []]


@pytest.mark.parametrize(
    ("environment", "found"), [({"RANK": "5", "LOCAL_RANK": "1"}, 1), ({"RANK": "5"}, 5), ({}, 0)]
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


PUSH, ANSWER = 4 * (LARGE + 1), 4 * LARGE


@pytest.mark.parametrize(
    ("wire", "how", "reason"),
    [
        ("shared memory", "killed with a child", "its connection ended"),
        ("TCP", "killed in a push", "its connection ended in the middle of a push"),
        ("TCP", "noise", "it broke the protocol: "),
    ],
)
def test_a_push_that_was_cut_off_is_not_taken(wire, how, reason, tmp_path):
    target, arguments = "tests.exchange.talking:one_is_lost", (WIRES[wire], how)
    first, second, server = launch(target, arguments, workers=2, servers=1, log_folder=tmp_path)
    assert first == [3.0, 3.0]
    if how == "noise":
        assert second.worker == 1
        assert second.reason.startswith("LostPeerError: server 0 is gone: ")
    else:
        assert second == LostWorker(1, "killed by SIGKILL")
    push, (lost, why), *rest = server["order"]
    assert (push, lost, rest) == ((1, 0, True), 1, [(0, 0, True), (0, 3, False)])
    assert why.startswith(reason) if reason[-1] == " " else why == reason
    assert server["weights"] == [3.0, 3.0]
    assert server["statistics"] == [[1.0], [2.0]]
    assert server["bytes"] == (4 * ANSWER, 2 * PUSH)


BROKEN = {
    "noise": b"\xff" * HEADER_BYTES,
    "a version to come": pack(Header(1, True)),
    "no version": pack(Header(-1, True)),
    "a stop without a push": pack(Header(0, False, stop=True)),
    "flags that none sets together": pack(Header(0, True, keep=True)) + bytes(8),
}


@pytest.fixture
def end():
    """A server's end over TCP, of a worker that has weights of version 0; and the worker's."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        gradient = torch.zeros(2)
        end = ServerEnd(ours, gradient, torch.zeros(0), None)
        end.answer(Header(0, True), gradient)
        yield end, theirs


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_what_breaks_the_protocol_is_no_message(content, end):
    end, worker = end
    worker.sendall(content)
    with pytest.raises(ConnectionError, match="it broke the protocol: "):
        end.receive()


@pytest.mark.parametrize("stop", [False, True])
def test_a_push_is_taken_whole_and_nobody_speaks_out_of_turn(stop, end):
    """So a push that says stop counts. A second one would write over the first, which the server
    may still read.
    """
    end, worker = end
    push = Header(0, True, stop=stop)
    worker.sendall(2 * (pack(push) + torch.tensor([3.0, 4.0]).numpy().tobytes()))
    assert end.receive() == push
    assert end.gradient.tolist() == [3.0, 4.0]
    with pytest.raises(ConnectionError, match="it broke the protocol: an untimely"):
        end.receive()
