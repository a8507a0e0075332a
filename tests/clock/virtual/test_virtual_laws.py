"""The virtual clock: exact, in float64, against loops that know nothing of it."""

import itertools

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from paceline.clock.snapshot import weights_digest
from paceline.clock.virtual.virtual_own_weights import RunningMean
from paceline.scheme.async_parameter_server import AsyncParameterServer
from paceline.scheme.gossip import Gossip
from paceline.scheme.independent import Independent
from paceline.scheme.post_local_sgd import PostLocalSGD
from paceline.scheme.sync_allreduce import SyncAllReduce
from paceline.scheme.sync_gossip import SyncGossip
from paceline.timing.profile import ClusterProfile, Link
from paceline.timing.step_times import StepTimes
from tests.clock.references import Gossiped
from tests.clock.virtual.trained import (
    JITTERED,
    SCHEMES,
    copied_vectors,
    train,
    weights_of,
    workers_for,
)
from tests.tiny import CONF, PlainSGD, Seen, batches_of, tiny_network, tiny_point

exactly = {"rtol": 0, "atol": 0}
PLACES = {
    "one machine": ClusterProfile(Link(0, 1), Link(0.05, 50_000), None, 0.02, 100_000),
    "nodes": ClusterProfile(Link(0.05, 20_000), Link(0.02, 50_000), 2, 0.02, 100_000),
}
every_scheme = pytest.mark.parametrize("scheme", SCHEMES.values(), ids=SCHEMES)


def numpy_gradient(weights, images, labels):
    """Of the mean cross-entropy of the tiny network, by hand."""
    w1, b1, w2, b2 = weights
    inputs = images.reshape(len(images), -1)
    hidden = np.tanh(inputs @ w1.T + b1)
    logits = hidden @ w2.T + b2
    shares = np.exp(logits - logits.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    shares[np.arange(len(labels)), labels] -= 1
    back = shares / len(labels)
    front = (back @ w2) * (1 - hidden**2)
    return [front.T @ inputs, front.sum(0), back.T @ hidden, back.sum(0)]


def test_asynchronous_sgd_is_a_numpy_loop():
    """Three workers, momentum and weight decay at the server; who arrives when is drawn apart."""
    torch.manual_seed(3)
    weights = [
        parameter.detach().numpy().copy() for parameter in tiny_network().double().parameters()
    ]
    momentum = [np.zeros_like(part) for part in weights]
    read = [[part.copy() for part in weights] for _ in range(3)]
    shares = [batches_of(tiny_point("sync_allreduce", 3, 4), worker) for worker in range(3)]
    taken, due = [0] * 3, [JITTERED.seconds(worker, 0) for worker in range(3)]
    for _ in range(60):
        worker = int(np.argmin(due))
        images, labels = shares[worker][taken[worker]]
        gradient = numpy_gradient(read[worker], images.numpy(), labels.numpy())
        for held, moving, part in zip(weights, momentum, gradient, strict=True):
            moving[...] = 0.9 * moving + part + 0.01 * held
            held -= 0.1 * moving
        read[worker] = [part.copy() for part in weights]
        taken[worker] += 1
        due[worker] += JITTERED.seconds(worker, taken[worker])
    # two more steps: those that were under way when the sixtieth push arrived
    strategy, _ = train(AsyncParameterServer(1), 3, 62, snapshot_samples=[240])
    (snapshot,) = strategy.clock.holder.snapshots
    expected = np.concatenate([part.ravel() for part in weights])
    np.testing.assert_allclose(snapshot.weights[0].numpy(), expected, rtol=1e-12, atol=1e-14)
    assert min(taken) > 0


def test_every_scheme_is_held_to_these_laws():
    files = (CONF / "scheme").glob("*.yaml")
    assert {name.split(" ")[0] for name in SCHEMES} == {path.stem for path in files}


@pytest.mark.slow
@every_scheme
@pytest.mark.parametrize("at_least", [1, 5])
def test_recycled_buffers_are_deep_copies(scheme, at_least):
    workers = workers_for(scheme(), at_least)
    settings = {"batch_norm": True, "snapshot_samples": [80, 180]}
    runs = [train(scheme(), workers, 65, **settings)]
    with copied_vectors():
        runs.append(train(scheme(), workers, 65, **settings))
    assert_close(*(weights_of(module) for _, module in runs), **exactly)
    snapshots = [strategy.clock.holder.snapshots for strategy, _ in runs]
    for ours, copied in zip(*snapshots, strict=True):
        assert_close(
            (ours.weights, ours.statistics), (copied.weights, copied.statistics), **exactly
        )


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
    clock = strategy.clock
    assert clock.kernel.num_processes == 0
    assert sum(worker.num_steps for worker in clock.workers) >= num_steps
    for worker in clock.workers:
        assert worker.gradient is worker.answer is worker.message is None


@pytest.mark.parametrize("workers", [2, 3])
def test_the_mean_at_the_end_happens_at_once_after_that_of_the_last_step(workers):
    """Whoever goes on from a mean may bring something for the next one at the same instant."""
    scheme, num_steps = PostLocalSGD(period=4, switch_at=1), 9 * workers
    strategy, _ = train(scheme, workers, num_steps)
    assert strategy.clock.kernel.num_processes == 0
    ended_with = [worker.weights.vector for worker in strategy.clock.workers]
    assert_close(ended_with, [strategy.clock.shared().weights[0]] * workers, **exactly)
    num_bytes = sum(worker.bytes_sent for worker in strategy.clock.workers)
    assert num_bytes == (9 + 1) * 2 * (workers - 1) * 103 * 8  # the tiny network's 103 weights


def test_workers_hold_no_more_than_a_vector_each():
    """Weights while they compute, the gradient while it is under way, never both."""
    strategy, _ = train(AsyncParameterServer(1), 16, 160)
    assert strategy.clock.pool.made <= 16 + 2


def test_synchronous_workers_share_one_vector():
    strategy, _ = train(SyncAllReduce(), 16, 160)
    assert strategy.clock.pool.made <= 4


def test_a_slow_worker_delays_all_synchronous_ones_and_no_asynchronous_one():
    slow = StepTimes(slow_workers=1, slow_factor=1e6)
    together, _ = train(SyncAllReduce(), 3, 60, step_times=slow)
    assert together.clock.kernel.now == 20e6
    strategy, _ = train(AsyncParameterServer(1), 3, 61, step_times=slow)
    first, second, third = strategy.clock.workers
    assert first.num_steps == 1
    assert second.num_steps == third.num_steps == 30
    assert second.step_ends == [float(turn) for turn in range(1, 31)]


def test_a_slow_worker_delays_its_neighbours_first_and_then_theirs():
    slow = StepTimes(slow_workers=1, slow_factor=1e6)
    strategy, _ = train(SyncGossip("ring"), 8, 48, step_times=slow)
    workers = strategy.clock.workers
    before = [sum(end < 1e6 for end in worker.step_ends) for worker in workers]
    assert before == [0, 0, 1, 2, 3, 2, 1, 0]
    assert {worker.bytes_sent for worker in workers} == {6 * 2 * 103 * 8}
    assert {worker.bytes_received for worker in workers} == {6 * 2 * 103 * 8}


def test_workers_that_share_nothing_are_plain_sgd_each():
    strategy, module = train(Independent(), 3, 60)
    config = tiny_point("sync_allreduce", 3, 4)
    alone = []
    for worker in range(3):
        reference, share = PlainSGD(config), batches_of(config, worker)
        for turn in range(strategy.clock.workers[worker].num_steps):
            reference.apply(reference.gradient(*share[turn]))
        alone.append(torch.cat([part.flatten() for part in reference.weights().values()]))
    held = [worker.weights.vector for worker in strategy.clock.workers]
    assert_close(held, alone, rtol=1e-12, atol=1e-14)
    mean = torch.cat([part.flatten() for part in weights_of(module).values()])
    assert_close(mean, torch.stack(alone).mean(0), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("graph", "workers"), [("ring", 6), ("complete", 9), ("complete", 2)])
def test_gossiping_workers_compute_on_what_they_began_with_and_keep_the_mean(graph, workers):
    """Many means come in the middle of a step; by the replay of all of them, and by the sum of all
    gradients. Links hold up messages, so that workers step while others wait.
    """
    link = Link(latency=0.2, bandwidth=8000)
    strategy, _ = train(
        Gossip(graph),
        workers,
        36 * workers,
        profile=ClusterProfile(link, link, 2, 0, 1),
        momentum=0.0,
        weight_decay=0.0,
    )
    config = tiny_point("gossip", workers, 4, training__epochs=3 * workers)
    config["model"]["optimizer"] |= {"momentum": 0.0, "weight_decay": 0.0}
    workers = [worker.report() for worker in strategy.clock.workers]
    reference = Gossiped(config, Seen([], workers, [], []))
    assert reference.in_steps > 9 * len(workers)
    held = [worker.weights.vector for worker in strategy.clock.workers]
    assert_close(held, reference.held, rtol=1e-12, atol=1e-14)
    mean = reference.flat.named(strategy.clock.shared().weights[0])
    assert_close(mean, reference.mean_by_gradients(), rtol=1e-12, atol=1e-14)


def test_gossiping_workers_hold_a_vector_each_what_they_compute_on_and_what_is_under_way():
    strategy, _ = train(Gossip("complete"), 16, 320)
    assert strategy.clock.pool.made <= 16 + 8 + 8


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


def test_the_mean_of_equal_vectors_is_exactly_that_vector():
    vector, mean = torch.tensor([0.1, 1e-30, 3.0]), RunningMean()
    for times in (1, 3, 7, 2):
        mean.add(vector, times)
    assert torch.equal(mean.value, vector)


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
