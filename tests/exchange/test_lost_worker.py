"""A worker that is lost in a push: nothing of that push is taken, and the others go on."""

import socket

import pytest
import torch

from paceline.cluster.supervisor import LostWorker
from paceline.exchange.wire.connection import Header, pack
from paceline.exchange.wire.server_wire import ServerEnd
from tests.exchange.talking import LARGE, WIRES
from tests.launching import launch

PUSH, ANSWER = 4 * (LARGE + 1), 4 * LARGE


def lose(wire, how, folder):
    target = "tests.exchange.talking:one_is_lost"
    return launch(target, (WIRES[wire], how), workers=2, servers=1, log_folder=folder)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("killed", "its connection ended"),
        ("killed with a child", "its connection ended"),
        ("killed in a push", "its connection ended in the middle of a push"),
    ],
)
def test_a_push_that_was_cut_off_is_not_taken(wire, how, reason, tmp_path):
    first, second, server = lose(wire, how, tmp_path)
    assert_one_push_each(server, reason)
    assert first == [3.0, 3.0]
    assert second == LostWorker(1, "killed by SIGKILL")


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    "how",
    ["noise", "a version to come", "no version", "a stop without a push", "added"],
)
def test_a_worker_that_breaks_the_protocol_is_lost(wire, how, tmp_path):
    first, second, server = lose(wire, how, tmp_path)
    assert_one_push_each(server, "it broke the protocol: ")
    assert first == [3.0, 3.0]
    assert second.worker == 1
    assert second.reason.startswith("LostPeerError: server 0 is gone: ")


def assert_one_push_each(server, reason):
    push, (lost, why), *rest = server["order"]
    assert (push, lost, rest) == ((1, 0, True), 1, [(0, 0, True), (0, 3, False)])
    assert why.startswith(reason) if reason[-1] == " " else why == reason
    assert server["weights"] == [3.0, 3.0]
    assert server["statistics"] == [1.0, 2.0]
    assert server["bytes"] == (4 * ANSWER, 2 * PUSH)


def test_nobody_speaks_out_of_turn():
    """A second push would write over the first, which the server may still read."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        gradient = torch.zeros(2)
        end = ServerEnd(ours, gradient, torch.zeros(0), None)
        push = pack(Header(0, True)) + bytes(8)
        theirs.sendall(push)
        with pytest.raises(ConnectionError, match="it broke the protocol: an untimely"):
            end.receive()
        end = ServerEnd(ours, gradient, torch.zeros(0), None)
        end.answer(Header(0, True), gradient)
        theirs.sendall(push + push)
        assert end.receive() == Header(0, True)
        with pytest.raises(ConnectionError, match="it broke the protocol: an untimely"):
            end.receive()
