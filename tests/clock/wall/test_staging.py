"""Copies between a worker on a GPU and its wire, by streams that do everything at once."""

from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

from paceline.clock.wall import staging
from paceline.clock.wall.staging import Staging
from tests.clock.wall.staged import Streams
from tests.tiny import run_tiny, tiny_point

SIZE, LEAST = 12, 4


@pytest.fixture
def wire():
    gradient, weights, statistics = torch.zeros(SIZE), torch.arange(SIZE) / 3, torch.zeros(3)
    return SimpleNamespace(
        gradient=gradient, weights=weights, statistics=statistics, in_host_memory=True
    )


@pytest.fixture
def copies(wire, monkeypatch):
    monkeypatch.setattr(staging, "_LEAST", LEAST)
    return Staging(wire, torch.device("cpu"), Streams)


def test_a_push_is_copied_in_parts_once_each_from_the_last_weight_on(wire, copies):
    for turn in (1.0, 2.0):
        value = torch.full((SIZE,), turn)
        under_way = [copies.begin(value, first) for first in (10, 7, 6, 3)]
        assert under_way == [SIZE, 7, 7, 3]  # too few weights wait for those before them
        assert_close(wire.gradient[3:], value[3:], rtol=0, atol=0)
        assert not (wire.gradient[:3] == value[:3]).any()
        value[3:] = -1.0  # what has left is not copied again
        copies.send(value, [torch.tensor([1.0, 2.0]), torch.tensor(turn)])
        assert wire.gradient.tolist() == [turn] * SIZE
        assert wire.statistics.tolist() == [1.0, 2.0, turn]


def test_each_copy_waits_for_the_worker_and_the_worker_for_the_weights(wire, copies):
    Streams.main.waits.clear()
    copies.send(torch.ones(SIZE), [torch.zeros(3)])
    assert copies._stream.waits == [Streams.main] * 2
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
    ("staged", "scheme", "workers", "settings"),
    [
        (("run", "run_elsewhere"), "sync_parameter_server", 2, {"scheme__overlap": True}),
        (("run",), "sync_parameter_server", 2, {"scheme__servers": 2}),
        (("run",), "sync_parameter_server", 2, {"scheme__group_size": 2}),
        (("run",), "elastic_averaging", 1, {"scheme__period": 2}),
    ],
)
def test_staged_workers_end_with_the_same_bits(staged, scheme, workers, settings, tmp_path):
    found = []
    for process in (
        *(f"tests.clock.wall.staged:{each}" for each in staged),
        "tests.unyielding:run",
    ):
        (folder := tmp_path / process.replace(":", " ")).mkdir()
        config = tiny_point(scheme, workers, 8, **settings)
        config["model"]["network"]["batch_norm"] = True
        seen, weights = run_tiny(config, folder, process)
        found.append((weights, [score.loss for each in seen.training for score in each.scores]))
    for each in found[:-1]:
        assert_close(each, found[-1], rtol=0, atol=0)
