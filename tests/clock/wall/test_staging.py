"""Copies between a worker on a GPU and its wire, by streams that do everything at once."""

from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

from paceline.clock.flat_weights import FlatWeights
from paceline.clock.wall import rule_strategy, wall_links
from paceline.clock.wall.wall_links import Staging
from tests.tiny import run_tiny, tiny_point
from tests.unyielding import run as run_plainly

SIZE = 12


class Stream:
    """What is launched is done at once; `waits`: for whom this stream has waited."""

    def __init__(self, device):
        self.waits = []

    def wait_stream(self, other):
        self.waits.append(other)

    def synchronize(self):
        pass


class Streams:
    """In the place of torch.cuda."""

    Stream = Stream
    main = Stream(None)

    @classmethod
    def current_stream(cls, device):
        return cls.main

    @staticmethod
    def stream(stream):
        return nullcontext()


def apart(parameters, weights, gradient):
    """Vectors that are not those of the wire, as on another device."""
    flat = FlatWeights(parameters, weights.clone(), gradient.clone())
    weights.copy_(flat.weights)
    return flat


def run(point, folder):
    """A process whose worker copies as one on a GPU does."""
    wall_links.staged = partial(Staging, streams=Streams)
    rule_strategy.FlatWeights = apart
    return run_plainly(point, folder)


@pytest.fixture
def wire():
    gradient, weights, statistics = torch.zeros(SIZE), torch.arange(SIZE) / 3, torch.zeros(3)
    return SimpleNamespace(
        gradient=gradient, weights=weights, statistics=statistics, in_host_memory=True
    )


@pytest.fixture
def copies(wire):
    return Staging(wire, torch.device("cpu"), Streams)


def test_each_push_is_copied(wire, copies):
    for turn in (1.0, 2.0):
        copies.send(torch.full((SIZE,), turn), [torch.tensor([1.0, 2.0]), torch.tensor(turn)])
        assert wire.gradient.tolist() == [turn] * SIZE
        assert wire.statistics.tolist() == [1.0, 2.0, turn]


def test_each_copy_waits_for_the_worker_and_the_worker_for_the_weights(wire, copies):
    Streams.main.waits.clear()
    copies.send(torch.ones(SIZE), [torch.zeros(3)])
    assert copies._stream.waits == [Streams.main]
    received = copies.receive()
    assert Streams.main.waits == [copies._stream]
    assert_close(received, wire.weights, rtol=0, atol=0)
    assert received.data_ptr() != wire.weights.data_ptr()


def test_buffers_that_a_server_shares_on_the_gpu_are_used_as_they_are(wire, copies):
    wire.in_host_memory = False
    shared = Staging(wire, torch.device("cpu"), Streams)
    wire.gradient.fill_(5.0)
    shared.send(wire.gradient, [torch.ones(3)])
    assert wire.statistics.tolist() == [1.0] * 3
    assert shared.receive() is wire.weights


@pytest.mark.parametrize(
    ("scheme", "workers", "settings"),
    [
        ("sync_parameter_server", 2, {"scheme__servers": 2}),
        ("sync_parameter_server", 2, {"scheme__group_size": 2}),
        ("elastic_averaging", 1, {"scheme__period": 2}),
    ],
)
def test_staged_workers_end_with_the_same_bits(scheme, workers, settings, tmp_path):
    found = []
    for process in (f"{__name__}:run", "tests.unyielding:run"):
        (folder := tmp_path / process.replace(":", " ")).mkdir()
        config = tiny_point(scheme, workers, 8, **settings)
        config["model"]["network"]["batch_norm"] = True
        seen, weights = run_tiny(config, folder, process)
        found.append((weights, [score.loss for each in seen.training for score in each.scores]))
    assert_close(*found, rtol=0, atol=0)
