"""The laws of the schemes on both clocks: exact, in float64, against a bare loop."""

import itertools
from collections import Counter

import pytest
import torch
from torch.testing import assert_close

from paceline.cluster.launch import ProcessFailure
from paceline.scheme.scheme import Apply, Mean, Turn, next_message
from paceline.scheme.sync_allreduce import SyncAllReduce
from paceline.training.settings import learning_rate
from tests.tiny import CLOCKS, NUM_TRAIN, PlainSGD, batches_of, run_tiny, tiny_point

SYNC, ASYNC = "sync_allreduce", "async_parameter_server"
on_both_clocks = pytest.mark.parametrize("clock", CLOCKS)


def rate_of(config, images_per_update):
    samples = config["training"]["epochs"] * NUM_TRAIN
    return learning_rate(
        config, images_per_update=images_per_update, epoch=NUM_TRAIN, samples=samples
    )


def plain_weights(config):
    """One worker with the whole global batch, in a bare loop."""
    alone = {**config, "workers": 1, "batch_size": config["workers"] * config["batch_size"]}
    reference, batches = PlainSGD(config), batches_of(alone, 0)
    size = alone["batch_size"]
    rate = rate_of(config, size)
    for turn in range(config["training"]["epochs"] * NUM_TRAIN // size):
        reference.apply(reference.gradient(*batches[turn]), rate.factor(turn * size))
    return reference.weights()


SCHEDULED = {
    "training__schedule": "cosine",
    "training__lr_rule": "linear",
    "training__warmup_epochs": 1,
}


@on_both_clocks
@pytest.mark.parametrize("scheme", [SYNC, ASYNC])
def test_one_worker_is_plain_sgd(scheme, clock, tmp_path):
    config = tiny_point(scheme, 1, 8, **SCHEDULED, **CLOCKS[clock])
    _, weights = run_tiny(config, tmp_path)
    assert_close(weights, plain_weights(config), rtol=1e-12, atol=1e-14)


@on_both_clocks
@pytest.mark.parametrize("workers", [2, 4])
def test_k_workers_are_one_worker_with_k_times_the_batch(workers, clock, tmp_path):
    config = tiny_point(SYNC, workers, 16 // workers, **SCHEDULED, **CLOCKS[clock])
    seen, weights = run_tiny(config, tmp_path)
    assert_close(weights, plain_weights(config), rtol=1e-12, atol=1e-14)
    assert [worker["counted"] for worker in seen] == [workers] * workers
    assert len({worker["weights_digest"] for worker in seen}) == 1


@on_both_clocks
@pytest.mark.parametrize("workers", [2, 4])
def test_the_rule_of_sync_allreduce_is_lightnings_ddp(workers, clock, tmp_path):
    """On real processes DDP stands in for the rule: only this law ties the two. The virtual clock
    drives the rule itself, and so is equal to real processes too.
    """
    config = tiny_point(SYNC, workers, 4, **CLOCKS[clock])
    _, weights = run_tiny(config, tmp_path)
    replicas = [PlainSGD(config) for _ in range(workers)]
    shares = [batches_of(config, worker) for worker in range(workers)]
    for turn in range(3 * NUM_TRAIN // (4 * workers)):
        flat = [
            torch.cat([part.flatten() for part in replica.gradient(*share[turn])])
            for replica, share in zip(replicas, shares, strict=True)
        ]
        for replica, gradient in zip(replicas, applied_by_rule(flat), strict=True):
            sizes = [parameter.numel() for parameter in replica.network.parameters()]
            parts = gradient.split(sizes)
            shapes = [parameter.shape for parameter in replica.network.parameters()]
            replica.apply([p.view(s) for p, s in zip(parts, shapes, strict=True)])
    for replica in replicas:
        assert_close(weights, replica.weights(), rtol=1e-12, atol=1e-14)


def applied_by_rule(gradients):
    """Drives the rule for all workers: each Mean is answered when all have come."""
    weights = torch.zeros_like(gradients[0])
    turns = [Turn(g, weights, k, len(gradients), 0, 0.0) for k, g in enumerate(gradients)]
    steps = [SyncAllReduce().step(turn) for turn in turns]
    messages = [next_message(step, None) for step in steps]
    assert all(isinstance(message, Mean) for message in messages)
    mean = torch.stack([message.value for message in messages]).mean(0)
    outcomes = [next_message(step, mean) for step in steps]
    assert all(isinstance(outcome, Apply) for outcome in outcomes)
    assert [next_message(step, weights) for step in steps] == [None] * len(steps)
    return [outcome.gradient for outcome in outcomes]


@on_both_clocks
@pytest.mark.parametrize(("workers", "servers"), [(1, 3), (2, 1), (2, 2), (4, 1), (4, 3)])
def test_replaying_the_order_of_pushes_gives_the_weights(workers, servers, clock, tmp_path):
    """An independent loop over the recorded arrivals. Servers may see them in different orders, so
    each part of the weights is replayed by its own server's record."""
    settings = {"scheme__servers": servers, **SCHEDULED, **CLOCKS[clock]}
    config = tiny_point(ASYNC, workers, 4, **settings)
    seen, weights = run_tiny(config, tmp_path)
    assert_close(weights, replayed(config, seen[workers:]), rtol=1e-12, atol=1e-14)
    assert_pushes_add_up(config, seen)


def replayed(config, reports):
    """The weights that the servers' records of arrivals imply, by momentum SGD written out."""
    options, rate = config["model"]["optimizer"], rate_of(config, 4)
    reference, workers = PlainSGD(config), range(config["workers"])
    shares = [batches_of(config, worker) for worker in workers]
    shapes = {name: value.shape for name, value in reference.weights().items()}
    flat = torch.cat([value.flatten() for value in reference.weights().values()])
    cuts = [len(flat) * server // len(reports) for server in range(len(reports) + 1)]
    parts = [slice(first, last) for first, last in itertools.pairwise(cuts)]
    momentum, read = torch.zeros_like(flat), [flat.clone() for _ in workers]
    taken = [Counter() for _ in reports]  # pushes of each worker that each server has applied
    gradients = {}

    def gradient(worker):
        turn = taken[0][worker]
        if (worker, turn) not in gradients:
            pieces = read[worker].split([shape.numel() for shape in shapes.values()])
            held = {n: p.view(s) for (n, s), p in zip(shapes.items(), pieces, strict=True)}
            found = reference.gradient(*shares[worker][turn], held)
            gradients[worker, turn] = torch.cat([part.flatten() for part in found])
        return gradients[worker, turn]

    def apply(server, worker, pushed):
        part, version = parts[server], taken[server].total()
        decayed = pushed[part] + options["weight_decay"] * flat[part]
        momentum[part] = decayed if version == 0 else options["momentum"] * momentum[part] + decayed
        flat[part] -= options["lr"] * rate.factor(4 * version) * momentum[part]
        read[worker][part] = flat[part]

    pending = [[worker for worker, _ in report["pushes"]] for report in reports]
    while any(pending):
        for worker in workers:  # whose step every server has next: its gradient is known then
            due = [server for server, queue in enumerate(pending) if queue[:1] == [worker]]
            if not due:
                continue
            turn = min(seen[worker] for seen in taken)
            pushed = gradients.get((worker, turn))
            if pushed is None:
                pushed = gradient(worker)
            for server in due:
                if taken[server][worker] == turn:
                    apply(server, worker, pushed)
                    taken[server][worker] += 1
                    pending[server].pop(0)
    pieces = flat.split([shape.numel() for shape in shapes.values()])
    return {name: piece.view(shapes[name]) for name, piece in zip(shapes, pieces, strict=True)}


def assert_pushes_add_up(config, seen):
    """No update is lost, and staleness is what the order of pushes implies."""
    workers = config["workers"]
    budget = config["training"]["epochs"] * NUM_TRAIN // config["batch_size"]
    steps = {worker: found["steps"] for worker, found in enumerate(seen[:workers])}
    assert sum(steps.values()) == budget
    for server in seen[workers:]:
        assert server["updates"] == len(server["pushes"]) == budget
        assert Counter(worker for worker, _ in server["pushes"]) == +Counter(steps)
        read = dict.fromkeys(steps, 0)
        for version, (worker, staleness) in enumerate(server["pushes"]):
            assert staleness == version - read[worker]
            read[worker] = version + 1


def waiting(blocked, broadcasting, folder):
    patience = 4 if broadcasting else 30
    return tiny_point(
        ASYNC,
        2,
        4,
        training__samples=4 * 260,
        model___target_="tests.tiny.WaitingClassifier",
        model__blocked=blocked,
        model__folder=str(folder),
        model__broadcasting=broadcasting,
        model__patience=patience,
    )


@pytest.mark.parametrize("blocked", [0, 1])
def test_asynchronous_means_asynchronous(blocked, tmp_path):
    """A worker blocks before its first push until the other has taken 200 steps."""
    seen, _ = run_tiny(waiting(blocked, False, tmp_path), tmp_path)
    first = [worker for worker, _ in seen[2]["pushes"]].index(blocked)
    assert first >= 200
    assert seen[2]["pushes"][first] == (blocked, first)


def test_the_law_fails_when_lightning_broadcasts_each_step(tmp_path):
    """As it does where its world size is that of the process group: nobody gets past a step."""
    config = waiting(0, True, tmp_path)
    config["cluster"]["timeout_seconds"] = 5
    with pytest.raises(ProcessFailure, match=r"(?i)timed out|timeout|lockstep"):
        run_tiny(config, tmp_path)


def test_evaluation_perturbs_nothing(tmp_path):
    ends = []
    for evaluations in (1, 7):
        folder = tmp_path / str(evaluations)
        folder.mkdir()
        config = tiny_point(SYNC, 2, 4, measurement__evaluations=evaluations)
        seen, weights = run_tiny(config, folder)
        assert sum(len(worker["scores"]) for worker in seen) == evaluations
        ends.append(weights)
    assert_close(*ends, rtol=0, atol=0)
