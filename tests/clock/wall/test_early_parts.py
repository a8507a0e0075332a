"""Parts of a push that leave while backward goes on: when, in which order, and what goes wrong."""

import socket

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from paceline.clock.flat_weights import FlatWeights
from paceline.clock.wall.parameter_server_strategy import PacedParts, RealParts
from paceline.errors import SettingError
from paceline.exchange.liveness import LostPeerError
from paceline.exchange.shard import backwards
from paceline.exchange.wire.frame import HEADER_BYTES, Header, bytes_of, pack
from paceline.exchange.wire.worker_end import EarlyEnd, WorkerEnd
from paceline.timing.pace import Pace
from paceline.timing.step_times import StepTimes
from paceline.timing.workload import CountedNetwork

VERSION = 7
FIRST, LAST = 3 * 4 + 4, 4 * 2 + 2  # weights of the layers


class Watched:
    """A network of 3-4-2 in one vector, of which early parts are told."""

    def __init__(self):
        torch.manual_seed(0)
        self.network = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
        weights = list(self.network.parameters())
        self.flat = FlatWeights(weights, *torch.zeros(2, FIRST + LAST, dtype=torch.float64))
        self.parts = RealParts(weights)
        self.told = []
        self.tell = self.told.append
        self.parts.begin(self.flat, lambda first: self.tell(first))

    def backward(self):
        self.flat.zero_gradient()
        self.network(torch.ones(5, 3, dtype=torch.float64)).square().sum().backward()

    def finish(self):
        self.flat.gather_gradient()
        self.parts.finish_backward()


@pytest.fixture
def watched():
    return Watched()


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    theirs.settimeout(10)
    with ours, theirs:
        yield ours, theirs


def early_end(vectors, sizes, connection, timeout_seconds=10):
    cuts = backwards(sizes, 0, len(vectors.weights))
    pushed = [bytes_of(vectors.gradient[first:last]) for first, last in cuts]
    end = WorkerEnd("server 0", connection, pushed, [bytes_of(vectors.weights)], timeout_seconds)
    return EarlyEnd(end, [first for first, _ in cuts])


def exactly(connection, num_bytes):
    content = bytearray()
    while len(content) < num_bytes:
        content += connection.recv(num_bytes - len(content))
    return bytes(content)


def test_the_last_layer_arrives_before_backward_has_come_to_the_first(watched, pair):
    """Backward stands still until it has."""
    end, arrived = early_end(watched.flat, watched.parts.sizes, pair[0]), []
    watched.tell = lambda first: end.push_from(first, VERSION)

    def receive(*_):
        arrived.append(exactly(pair[1], HEADER_BYTES + 8 * LAST))

    watched.network[1].register_full_backward_hook(receive)
    watched.backward()
    assert len(arrived) == 1
    end.push(VERSION)
    arrived.append(exactly(pair[1], 8 * FIRST))
    expected = [bytes(bytes_of(view.flatten())) for view in watched.flat.gradients[::-1]]
    assert b"".join(arrived) == pack(Header(VERSION, True)) + b"".join(expected)
    answer = torch.arange(FIRST + LAST, dtype=torch.float64)
    pair[1].sendall(pack(Header(VERSION + 1, False)) + bytes(bytes_of(answer)))
    assert end.pull() == Header(VERSION + 1, False)
    assert_close(watched.flat.weights, answer, rtol=0, atol=0)


def test_what_a_checkpoint_needs_is_in_the_headers(watched, pair):
    """The next push asks for a stop, the one behind it no more; a message of its own to keep."""
    end = early_end(watched.flat, watched.parts.sizes, pair[0])
    num_bytes = 8 * len(watched.flat.weights)
    end.ask_to_stop()
    for stops in (True, False):
        end.push(VERSION)
        assert exactly(pair[1], HEADER_BYTES) == pack(Header(VERSION, True, stop=stops))
        exactly(pair[1], num_bytes)
        pair[1].sendall(pack(Header(VERSION, True)) + bytes(num_bytes))
        end.pull()
    end.keep(VERSION)
    assert exactly(pair[1], HEADER_BYTES) == pack(Header(VERSION, False, keep=True))


def test_each_weight_is_told_once_it_and_all_behind_it_are_complete(watched):
    for _ in range(2):
        watched.backward()
        watched.finish()
    assert sorted(set(watched.told), reverse=True) == [FIRST + 8, FIRST, 12, 0]
    assert watched.told == 2 * sorted(watched.told[: len(watched.told) // 2], reverse=True)


def test_a_gradient_that_never_comes_holds_up_those_before_it(watched):
    watched.flat.zero_gradient()
    inputs = torch.ones(5, 3, dtype=torch.float64)
    hidden = watched.network[1](watched.network[0](inputs))
    (hidden @ watched.network[2].weight.T).sum().backward()  # without the last bias
    assert watched.told == []
    watched.finish()
    watched.backward()
    assert watched.told[-1] == 0


def test_a_gradient_in_another_place_is_copied_before_it_is_told(watched):
    """As with create_graph, or a hook that puts one there."""
    bias, gradient = watched.network[2].bias, torch.full((2,), 3.0, dtype=torch.float64)
    watched.parts.end()
    bias.register_post_accumulate_grad_hook(lambda weight: setattr(weight, "grad", gradient))
    found = []
    watched.parts.begin(watched.flat, lambda first: found.append(watched.flat.gradient.clone()))
    watched.backward()
    watched.finish()
    assert_close(found[0][-2:], gradient, rtol=0, atol=0)


def test_a_weight_that_is_used_twice_is_told_once(watched):
    layer = watched.network[2]
    watched.flat.zero_gradient()
    hidden = watched.network[1](watched.network[0](torch.ones(5, 3, dtype=torch.float64)))
    (layer(hidden) * layer(2 * hidden)).sum().backward()
    assert watched.told[-1] == 0
    watched.finish()


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda watched: watched.flat.gradients[0].mul_(2), "gradients are changed after backward"),
        (lambda watched: watched.network(torch.ones(1, 3).double()).sum().backward(), "more than"),
    ],
)
def test_what_would_change_a_part_that_has_left_is_refused(spoil, reason, watched):
    watched.backward()
    with pytest.raises(SettingError, match=rf"^scheme\.overlap: .*{reason}.* false is needed$"):
        spoil(watched), watched.finish()


def test_nothing_is_told_after_the_end(watched):
    watched.parts.end()
    watched.backward()
    assert watched.told == []


def test_the_loss_of_a_server_during_backward_is_raised_after_it(watched, pair):
    end = early_end(watched.flat, watched.parts.sizes, pair[0])
    watched.tell = lambda first: end.push_from(first, VERSION)
    pair[1].close()
    watched.backward()
    end.push(VERSION)
    with pytest.raises(LostPeerError, match=r"^server 0 is gone: "):
        end.pull()


def test_a_server_that_takes_nothing_more_holds_up_the_pull_and_not_backward(pair):
    size = 2**20  # no socket holds as many
    weights = [nn.Parameter(torch.zeros(size))]
    flat = FlatWeights(weights, *torch.zeros(2, size))
    end = early_end(flat, [size // 2, size // 2], pair[0], timeout_seconds=0.2)
    end.push_from(size // 2, VERSION)
    end.push_from(0, VERSION)
    end.push(VERSION)
    with pytest.raises(TimeoutError, match=r"^server 0 is silent for 0\.2 s$"):
        end.pull()


def test_more_parts_than_a_call_takes_arrive(pair):
    size = 5000
    flat = FlatWeights([nn.Parameter(torch.zeros(size))], *torch.zeros(2, size))
    flat.gradient.copy_(torch.arange(size))
    end = early_end(flat, [1] * size, pair[0])
    end.push(VERSION)
    arrived = exactly(pair[1], HEADER_BYTES + 4 * size)
    assert arrived[HEADER_BYTES:] == bytes(bytes_of(flat.gradient.flip(0)))


def test_parts_of_a_paced_step_are_told_at_their_times(monkeypatch):
    """Of 3 s, of which backward takes 2; a quarter of it is the last layer's."""

    class ByHand:
        now, times = 0.0, []

        def sleep(self, seconds):
            self.now += seconds

        def perf_counter(self):
            return self.now

    clock = ByHand()
    monkeypatch.setattr("paceline.timing.pace.time", clock)
    rows = [["first", 20, 2, 1], ["second", 30, 1, 1], ["third", 50, 1, 1]]
    workload = CountedNetwork(name="made", image_shape=[3, 4, 4], num_classes=2, layers=rows)
    pace = Pace(StepTimes(step_seconds=3.0), 0, workload)
    parts = PacedParts(pace, own_bytes=0, num_weights=10)
    assert parts.sizes == [2, 3, 5]
    told = []
    flat = FlatWeights([nn.Parameter(torch.zeros(10))], *torch.zeros(2, 10))
    parts.begin(flat, lambda first: told.append((first, clock.now)))
    for _ in range(2):
        pace.begin()
        clock.now += 0.125  # of real compute
        parts.finish_backward()
        pace.wait()
    assert told == [(5, 1.5), (2, 2.0), (5, 4.5), (2, 5.0)]
    assert clock.now == 6
