"""Which BatchNorm statistics are evaluated: exact, against a bare loop."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from paceline.scheme.independent import Independent
from paceline.timing.step_times import StepTimes
from tests.clock.virtual.trained import train
from tests.tiny import CLOCKS, NUM_TRAIN, PlainSGD, batches_of, run_tiny, run_together, tiny_point

SYNC, ASYNC = "sync_allreduce", "async_parameter_server"
STATISTICS = ("2.running_mean", "2.running_var")


def normalised_point(scheme, workers, **settings):
    network = {"_target_": "tests.tiny.tiny_network", "batch_norm": True}
    return tiny_point(scheme, workers, 8, model__network=network, **settings)


def bare_loop(config):
    """Replicas of synchronous SGD, each with the BatchNorm statistics of its own batches."""
    workers = config["workers"]
    replicas = [PlainSGD(config) for _ in range(workers)]
    shares = [batches_of(config, worker) for worker in range(workers)]
    for turn in range(config["training"]["epochs"] * NUM_TRAIN // (8 * workers)):
        gradients = [r.gradient(*s[turn]) for r, s in zip(replicas, shares, strict=True)]
        mean = [torch.stack(parts).mean(0) for parts in zip(*gradients, strict=True)]
        for replica in replicas:
            replica.apply([part.clone() for part in mean])
    return [replica.weights() for replica in replicas]


@pytest.mark.parametrize("clock", CLOCKS)
def test_synchronous_workers_are_evaluated_with_the_mean_of_their_statistics(clock, tmp_path):
    schemes = (SYNC, "sync_parameter_server", "mixed")
    configs = [normalised_point(scheme, 2, **CLOCKS[clock]) for scheme in schemes]
    first, second = bare_loop(configs[0])
    for _, weights in run_together(configs, tmp_path):
        for name in STATISTICS:
            assert (first[name] - second[name]).abs().max() > 1e-3  # each worker has its own
            assert_close(weights[name], (first[name] + second[name]) / 2, rtol=1e-12, atol=1e-14)
        assert_close(weights["1.weight"], first["1.weight"], rtol=1e-12, atol=1e-14)


def test_one_asynchronous_worker_is_evaluated_with_the_statistics_of_plain_sgd(tmp_path):
    """They reach server 0 with each push, also where the weights are on two servers."""
    config = normalised_point(ASYNC, 1, scheme__servers=2)
    _, weights = run_tiny(config, tmp_path)
    (plain,) = bare_loop(config)
    for name in (*STATISTICS, "1.weight"):
        assert_close(weights[name], plain[name], rtol=1e-12, atol=1e-14)


def test_asynchronous_workers_are_evaluated_with_the_mean_of_their_latest_statistics(tmp_path):
    """At a rate that leaves the weights as they are, they depend on a worker's steps alone."""
    config = normalised_point(ASYNC, 2, model__optimizer__lr=1e-300)
    seen, weights = run_tiny(config, tmp_path)
    replicas = [PlainSGD(config) for _ in range(2)]
    for worker, replica in enumerate(replicas):
        for turn in range(seen.workers[worker].steps):
            replica.gradient(*batches_of(config, worker)[turn])
    first, second = (replica.weights() for replica in replicas)
    assert seen.workers[0].steps + seen.workers[1].steps == 3 * NUM_TRAIN // 8
    for name in STATISTICS:
        assert (first[name] - second[name]).abs().max() > 1e-3
        assert_close(weights[name], (first[name] + second[name]) / 2, rtol=1e-12, atol=1e-14)


def cumulative(batch_norm):
    """BatchNorm without momentum counts its batches, and keeps the mean over all of them."""
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(16, momentum=None), nn.Linear(16, 3))


@pytest.mark.parametrize("workers", [1, 3])
def test_a_mean_over_all_batches_is_over_the_workers_own(workers, monkeypatch):
    monkeypatch.setattr("tests.clock.virtual.trained.tiny_network", cumulative)
    strategy, module = train(Independent(), workers, 4 * workers, step_times=StepTimes())
    for worker in strategy.execution.workers:
        batches = batches_of(tiny_point("independent", workers, 4), worker.index)
        means = [batches[n][0].flatten(1).mean(0) for n in range(4)]
        assert_close(worker.statistics[:16], torch.stack(means).mean(0))
        assert [int(counter) for counter in worker.counters] == [4]
    assert int(module.network[1].num_batches_tracked) == 4
