"""Buffers that are no floating-point numbers: each worker has its own on the virtual clock."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from paceline.scheme.independent import Independent
from paceline.timing.step_times import StepTimes
from tests.clock.virtual.trained import train
from tests.tiny import batches_of, tiny_point


def cumulative(batch_norm):
    """BatchNorm without momentum counts its batches, and keeps the mean over all of them."""
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(16, momentum=None), nn.Linear(16, 3))


@pytest.mark.parametrize("workers", [1, 3])
def test_a_mean_over_all_batches_is_over_the_workers_own(workers, monkeypatch):
    monkeypatch.setattr("tests.clock.virtual.trained.tiny_network", cumulative)
    strategy, module = train(Independent(), workers, 4 * workers, step_times=StepTimes())
    for worker in strategy.clock.workers:
        batches = batches_of(tiny_point("independent", workers, 4), worker.index)
        means = [batches[n][0].flatten(1).mean(0) for n in range(4)]
        assert_close(worker.statistics.vector[:16], torch.stack(means).mean(0))
        assert [int(counter) for counter in worker.counters] == [4]
    assert int(module.network[1].num_batches_tracked) == 4
