"""What the virtual clock's strategy reports of all its workers and servers."""

import numpy as np
import pytest
import torch

from paceline.clock.snapshot import weights_digest
from paceline.scheme.async_parameter_server import AsyncParameterServer
from paceline.scheme.gossip import Gossip
from paceline.scheme.sync_allreduce import SyncAllReduce
from tests.clock.virtual.trained import train


@pytest.mark.parametrize("scheme", [SyncAllReduce(), AsyncParameterServer(2), Gossip("ring")])
def test_a_report_holds_modelled_times_of_every_worker(scheme):
    strategy, _ = train(scheme, 4, 32, snapshot_samples=[64, 128])
    report = strategy.report(np.arange(32.0), seconds_data=5.0)
    workers = strategy.clock.workers
    assert (report.counted, report.diverged) == (4, False)
    assert report.updates == strategy.clock.holder.updates
    for found, worker in zip(report.workers, workers, strict=True):
        assert (found.worker, found.steps) == (worker.index, worker.num_steps)
        assert found.step_ends.tolist() == worker.step_ends
        assert found.seconds_data == 0
        assert (found.bytes_sent, found.bytes_received) == (
            worker.bytes_sent,
            worker.bytes_received,
        )
        assert found.weights_digest == weights_digest([worker.weights.vector])
    assert [server.server for server in report.servers] == list(range(scheme.servers))
    assert sum(found.steps for found in report.workers) == 32
    drawn = [(each.index, n) for each in workers for n in range(each.num_steps)]
    assert list(strategy.batches_drawn()) == drawn
    assert len(strategy.real_seconds(strategy.finish())) == len(strategy.finish()) == 2


@pytest.mark.parametrize("server", [0, 1])
def test_a_run_has_diverged_where_one_server_has(server):
    strategy, _ = train(AsyncParameterServer(2), 4, 8)
    strategy.clock.servers.served[server].report.diverged = True
    assert strategy.report(np.arange(8.0), seconds_data=0.0).diverged


def test_a_digest_tells_weights_apart_and_not_how_they_are_cut():
    weights = torch.arange(6.0)
    assert weights_digest([weights]) == weights_digest([weights[:2], weights[2:].view(2, 2)])
    assert weights_digest([weights]) != weights_digest([weights + 1e-6 * (weights == 3)])


def test_its_seconds_are_modelled_while_it_trains():
    strategy, _ = train(AsyncParameterServer(1), 4, 32)
    assert strategy.seconds(real=1e9) == strategy.clock.kernel.now < 1e3
