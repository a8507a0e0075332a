"""Workers pause for a checkpoint all together, or not at all."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch.distributed as dist

from paceline.record.checkpoint import ASKED, CHECKPOINTS
from paceline.run import checkpoints
from paceline.run.checkpoints import CheckpointFiles, Pauses
from paceline.scheme.counts import Counts
from paceline.scheme.elastic_averaging import ElasticAveraging
from paceline.scheme.independent import Independent
from tests.tiny import point_of, tiny_point


@pytest.fixture
def two(tmp_path, monkeypatch):
    """Two workers of 4 images a step that share a store, and the first one's pushes."""
    store = dist.HashStore()
    for name, of_store in (
        ("run_store", lambda: store),
        ("worker_index", lambda: 0),
        ("draw_number", lambda name: store.add(name, 1) - 1),
        ("numbers_drawn", lambda name: store.add(name, 0)),
    ):
        monkeypatch.setattr(checkpoints, name, of_store)
    point = point_of(tiny_point("independent", 2, 4, training__checkpoint_seconds=1e-9))
    files = [CheckpointFiles(point, tmp_path, name) for name in ("worker_0", "worker_1")]
    strategies: list[Any] = [SimpleNamespace(samples=0, push=None) for _ in files]
    pauses = [Pauses(Counts(Independent(), 2), each, 0.1) for each in strategies]
    for each in pauses:
        each.begin()
    return files, strategies, pauses


def test_the_first_worker_at_a_number_of_samples_decides_for_both(two):
    """Until then the other one goes on, whether or not a checkpoint is due to it."""
    (files, other_files), (first, other), (pauses, other_pauses) = two
    files.seconds = None
    first.samples = 8
    assert not pauses.comes(files)
    other.samples = 12
    assert other_pauses._look_at <= 12
    files.seconds = 1e-9
    other_files.seconds = None
    first.samples = 40
    assert pauses.comes(files)
    assert other_pauses.comes(other_files)  # two looks late, and not due to itself


def test_who_has_stopped_does_not_wait_for_a_worker_that_has_ended(two):
    (files, _), (first, _), (pauses, _) = two
    first.samples = 8
    assert pauses.comes(files)
    with pytest.raises(TimeoutError, match=r"^a checkpoint is not there after 0\.1 s$"):
        pauses.carry_out(lambda: None, files)
    files.end()
    pauses.carry_out(lambda: pytest.fail("written by one of two"), files)
    assert not files.is_due()


def test_one_request_is_for_one_checkpoint(two, tmp_path):
    (files, _), _, _ = two
    files.seconds, files.look_seconds = 1e9, 0.0
    assert not files.is_due()
    (tmp_path / CHECKPOINTS).mkdir(exist_ok=True)
    (tmp_path / CHECKPOINTS / ASKED).touch()
    assert files.is_due()
    files.write(Path.touch, samples=8)
    assert not files.is_due()


def test_nobody_goes_on_before_all_workers_and_servers_have_written(two, monkeypatch):
    """One worker and two servers, each of which writes at once, or is silent."""
    (files, _), (first, _), _ = two
    files._num_processes = 3
    pauses = Pauses(Counts(ElasticAveraging(servers=2, period=3, elasticity=0.1), 1), first, 0.1)
    written = []

    def write_all(servers):
        number = f"files of checkpoint {files.written + 1}"
        first.push.wire.keep = lambda: [checkpoints.draw_number(number) for _ in range(servers)]
        return lambda: files.write(written.append, samples=8)

    monkeypatch.setattr(checkpoints, "complete", lambda *_: None)
    first.push = SimpleNamespace(wire=SimpleNamespace())
    pauses.carry_out(write_all(servers=2), files)
    with pytest.raises(TimeoutError):
        pauses.carry_out(write_all(servers=1), files)
    assert len(written) == 2
