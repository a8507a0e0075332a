"""Workers stop for a checkpoint all together, or not at all."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch.distributed as dist

from paceline.clock.wall import cuts
from paceline.scheme.async_parameter_server import AsyncParameterServer
from paceline.scheme.counts import Counts
from paceline.scheme.independent import Independent


@pytest.fixture
def first_of_two(monkeypatch):
    """Worker 0's part; worker 1 never comes."""
    store = dist.HashStore()
    monkeypatch.setattr(cuts, "run_store", lambda: store)
    monkeypatch.setattr(cuts, "worker_index", lambda: 0)
    strategy: Any = SimpleNamespace(num_steps=3)
    counts = Counts(Independent(), 2)
    return cuts.Cuts(counts, strategy, look_seconds=0, timeout_seconds=0.1)


def test_who_has_stopped_does_not_wait_for_a_worker_that_has_ended(first_of_two):
    assert first_of_two.comes(lambda: True)
    with pytest.raises(TimeoutError, match=r"^a checkpoint is not there after 0\.1 s$"):
        first_of_two.stop()
    cuts.end_cuts()
    assert not first_of_two.stop()


def test_no_checkpoint_is_asked_for_once_a_worker_has_ended(first_of_two):
    assert not first_of_two.comes(lambda: False)
    cuts.end_cuts()
    assert not first_of_two.comes(lambda: True)


def test_servers_are_asked_once_for_each_checkpoint_and_each_says_that_it_has_kept(monkeypatch):
    """One worker with two servers, each of which saves at once, or is silent."""
    asked, store = [], dist.HashStore()
    monkeypatch.setattr(cuts, "run_store", lambda: store)
    monkeypatch.setattr(cuts, "worker_index", lambda: 0)
    wire: Any = SimpleNamespace(stops=False, ask_to_stop=lambda: asked.append("stop"))
    strategy: Any = SimpleNamespace(num_steps=3, push=SimpleNamespace(wire=wire))
    counts = Counts(AsyncParameterServer(2), 1)
    cut = cuts.Cuts(counts, strategy, look_seconds=0, timeout_seconds=0.1)
    for number in (1, 2):
        assert not cut.comes(lambda: False)
        assert not any(cut.comes(lambda: True) for _ in range(3))
        assert len(asked) == number
        wire.keep = lambda: [cuts.tell_kept() for _ in range(2)]
        assert cut.stop()
        cut.go_on()
    wire.keep = cuts.tell_kept  # of one of the two
    with pytest.raises(TimeoutError):
        cut.stop()
