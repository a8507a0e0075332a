"""A worker that is lost in a push: nothing of that push is taken, and the others go on."""

import socket

import pytest
import torch

from paceline.cluster.supervisor import LostWorker
from paceline.exchange.wire.connection import HEADER_BYTES, Header, pack
from paceline.exchange.wire.server_wire import ServerEnd
from tests.exchange.talking import LARGE, WIRES
from tests.launching import launch

PUSH, ANSWER = 4 * (LARGE + 1), 4 * LARGE


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("killed with a child", "its connection ended"),
        ("killed in a push", "its connection ended in the middle of a push"),
        ("noise", "it broke the protocol: "),
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
    assert server["statistics"] == [1.0, 2.0]
    assert server["bytes"] == (4 * ANSWER, 2 * PUSH)


BROKEN = {
    "noise": b"\xff" * HEADER_BYTES,
    "a version to come": pack(Header(3, True)),
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
