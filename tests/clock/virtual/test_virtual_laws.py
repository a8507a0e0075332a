"""The virtual clock: exact, in float64, against loops that know nothing of it."""

import itertools

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from paceline.clock.snapshot import weights_digest
from paceline.clock.virtual.shared_states import RunningMean
from paceline.scheme.async_parameter_server import AsyncParameterServer
from paceline.scheme.gossip import Gossip
from paceline.scheme.post_local_sgd import PostLocalSGD
from paceline.scheme.sync_allreduce import SyncAllReduce
from paceline.scheme.sync_gossip import SyncGossip
from paceline.timing.profile import ClusterProfile, Link
from paceline.timing.step_times import StepTimes
from tests.clock.virtual.trained import SCHEMES, copied_vectors, train, weights_of, workers_for

exactly = {"rtol": 0, "atol": 0}
PLACES = {
    "one machine": ClusterProfile(Link(0, 1), Link(0.05, 50_000), None, 0.02, 100_000),
    "nodes": ClusterProfile(Link(0.05, 20_000), Link(0.02, 50_000), 2, 0.02, 100_000),
}


RUNS = list(itertools.product([(4, 18), (6, 37), (2, 1)], PLACES))


def runs_of_every_rule():
    """Each scheme in each of RUNS; by turns one of these is not slow."""
    for number, (name, scheme) in enumerate(SCHEMES.items()):
        for turn, ((at_least, num_steps), place) in enumerate(RUNS):
            yield pytest.param(
                *(scheme, at_least, num_steps, PLACES[place]),
                id=f"{name}, {num_steps} steps on {place}",
                marks=[] if turn == number % len(RUNS) else [pytest.mark.slow],
            )


@pytest.mark.parametrize(("scheme", "at_least", "num_steps", "place"), [*runs_of_every_rule()])
def test_every_rule_runs_to_its_end(scheme, at_least, num_steps, place):
    """No process waits for what never comes, though periods and workers do not divide the run."""
    workers = workers_for(scheme(), at_least)
    options = {"profile": place, "length": 4 * num_steps + 8 * workers}
    strategy, _ = train(scheme(), workers, num_steps, **options)
    simulation = strategy.simulation
    assert simulation.kernel.num_processes == 0
    assert sum(worker.num_steps for worker in simulation.workers) >= num_steps
    for worker in strategy.execution.workers:
        assert worker.gradient is worker.rule is worker.message is worker.incoming is None


@pytest.mark.parametrize("workers", [2, 3])
def test_the_mean_at_the_end_happens_at_once_after_that_of_the_last_step(workers):
    """Whoever goes on from a mean may bring something for the next one at the same instant."""
    scheme, num_steps = PostLocalSGD(period=4, switch_at=1), 9 * workers
    strategy, _ = train(scheme, workers, num_steps)
    assert strategy.simulation.kernel.num_processes == 0
    ended_with = [worker.weights for worker in strategy.execution.workers]
    assert_close(ended_with, [strategy.execution.shared().weights[0]] * workers, **exactly)
    num_bytes = sum(worker.bytes_sent for worker in strategy.simulation.workers)
    assert num_bytes == (9 + 1) * 2 * (workers - 1) * 103 * 8  # the tiny network's 103 weights


def test_a_slow_worker_delays_its_neighbours_first_and_then_theirs():
    slow = StepTimes(slow_workers=1, slow_factor=1e6)
    strategy, _ = train(SyncGossip("ring"), 8, 48, step_times=slow)
    workers = strategy.simulation.workers
    before = [sum(end < 1e6 for end in worker.step_ends) for worker in workers]
    assert before == [0, 0, 1, 2, 3, 2, 1, 0]
    assert {worker.bytes_sent for worker in workers} == {6 * 2 * 103 * 8}
    assert {worker.bytes_received for worker in workers} == {6 * 2 * 103 * 8}


@pytest.mark.parametrize("seed", range(4))
def test_any_grouping_of_equal_vectors_has_the_mean_of_all(seed):
    """In any order, and whether equal vectors come one by one or at once with their number."""
    rng = np.random.default_rng(seed)
    vectors, counts = rng.standard_normal((4, 5)), rng.integers(1, 6, 4)
    expected = np.repeat(vectors, counts, axis=0).mean(0)
    for parts in (counts.tolist(), [1] * 4):
        mean, left = RunningMean(), counts.tolist()
        while any(left):
            place = int(rng.choice(np.flatnonzero(left)))
            times = min(parts[place], left[place])
            mean.add(torch.from_numpy(vectors[place]), times)
            left[place] -= times
        assert mean.count == counts.sum()
        np.testing.assert_allclose(mean.value.numpy(), expected, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES.values(), ids=SCHEMES)
def test_recycled_buffers_are_deep_copies(scheme):
    workers, settings = (
        workers_for(scheme(), 5),
        {"batch_norm": True, "snapshot_samples": [80, 180]},
    )
    runs = [train(scheme(), workers, 65, **settings)]
    with copied_vectors():
        runs.append(train(scheme(), workers, 65, **settings))
    assert_close(*(weights_of(module) for _, module in runs), **exactly)
    kept = [
        [(each.weights, each.statistics) for each in strategy.execution.snapshots]
        for strategy, _ in runs
    ]
    assert_close(*kept, **exactly)


@pytest.mark.parametrize(
    ("scheme", "steps", "most"),
    [
        # weights while they compute, the gradient while it is under way, never both
        (AsyncParameterServer(1), 160, 16 + 2),
        (SyncAllReduce(), 160, 4),  # all share one
        (Gossip("complete"), 320, 16 + 8 + 8),  # what they compute on, and what is under way
    ],
)
def test_sixteen_workers_hold_no_more_vectors_than_they_need(scheme, steps, most):
    strategy, _ = train(scheme, 16, steps)
    assert strategy.execution.lender.made <= most
    assert strategy.seconds(real=1e9) == strategy.simulation.kernel.now < 1e3


@pytest.mark.parametrize("scheme", [SyncAllReduce(), AsyncParameterServer(2), Gossip("ring")])
def test_a_report_holds_modelled_times_of_every_worker(scheme):
    strategy, _ = train(scheme, 4, 32, snapshot_samples=[64, 128])
    report, workers = strategy.report(np.arange(32.0), seconds_data=5.0), strategy.execution.workers
    assert (report.counted, report.diverged) == (4, False)
    for found, worker in zip(report.workers, workers, strict=True):
        assert found.step_ends.tolist() == worker.virtual.step_ends
        assert (found.seconds_data, found.steps) == (0, worker.num_steps)
        assert found.weights_digest == weights_digest([worker.weights])
    assert sum(found.steps for found in report.workers) == 32
    drawn = [(each.index, n) for each in workers for n in range(each.num_steps)]
    assert list(strategy.batches_drawn()) == drawn
    assert len(strategy.real_seconds(strategy.finish())) == len(strategy.finish()) == 2
    for server in range(scheme.servers):  # it has diverged where one of them has
        served = strategy.simulation.servers.pushes[server].report
        served.diverged = True
        assert strategy.report(np.arange(32.0), seconds_data=0.0).diverged
        served.diverged = False
