"""The moving average beside the weights is that of them after each update, on both clocks."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from paceline.clock.snapshot import MovingAverage, decay_per_sample, evaluated_weights
from paceline.errors import SettingError
from paceline.scheme.async_parameter_server import AsyncParameterServer
from paceline.scheme.local_sgd import LocalSGD
from paceline.study.compose import composed
from tests.clock.references import Flat, Momentum, Rate, owners
from tests.clock.replay import Replay
from tests.tiny import (
    CLOCKS,
    NUM_TRAIN,
    batches_of,
    point_of,
    run_tiny,
    run_together,
    tiny_point,
)

DECAY, REFERENCE = 0.8, 8  # of TINY's lr_reference_batch_size


def in_numpy(first, changes):
    """`changes`: (images of all workers since the last change, weights after it) in order."""
    average = first.numpy().copy()
    for images, weights in changes:
        kept = DECAY ** (images / REFERENCE)
        average = kept * average + (1 - kept) * weights.numpy()
    return torch.from_numpy(average)


def together(config, seen):
    """Synchronous workers, as one with the whole batch."""
    flat, workers = Flat(config), range(config["workers"])
    images, optimizer = len(workers) * config["batch_size"], Momentum(flat.options, flat.first)
    shares, rate = [batches_of(config, worker) for worker in workers], Rate(config, images)
    held, changes = flat.first, []
    for turn in range(config["training"]["epochs"] * NUM_TRAIN // images):
        gradient = torch.stack([flat.gradient(share[turn], held) for share in shares]).mean(0)
        held = optimizer.step(held, gradient, rate.factor(turn * images))
        changes.append((images, held))
    return flat.named(in_numpy(flat.first, changes))


class Recording(Replay):
    """Remembers each server's part of the weights after each of its updates."""

    def _update(self, server, workers):
        before = self._samples[server]
        super()._update(server, workers)
        part = self._held[self._parts[server]].clone()
        self.__dict__.setdefault("changes", [[] for _ in self._reports])
        self.changes[server].append((self._samples[server] - before, part))


def at_servers(config, seen):
    replay = Recording(config, seen)
    replay.weights()
    first = [replay._flat.first[part] for part in replay._parts]
    parts = [in_numpy(begun, each) for begun, each in zip(first, replay.changes, strict=True)]
    return replay._flat.named(torch.cat(parts))


def at_each_worker(config, seen):
    """Workers that never meet, each by the numbers of its steps among those of all."""
    flat, averages = Flat(config), []
    for own, report in zip(owners(config, seen, flat), seen.workers, strict=True):
        changes = []
        for images in np.diff(report.step_numbers) * config["batch_size"]:
            own.end()
            changes.append((images, own.held))
        averages.append(in_numpy(flat.first, changes))
    return flat.named(torch.stack(averages).mean(0))


def local(config, seen):
    """Workers that take the mean of their weights after every second step."""
    flat, workers = Flat(config), range(config["workers"])
    images, shares = len(workers) * config["batch_size"], [batches_of(config, w) for w in workers]
    optimizers = [Momentum(flat.options, flat.first) for _ in workers]
    rate, held = Rate(config, images), [flat.first for _ in workers]
    changes = [[] for _ in workers]
    for turn in range(config["training"]["epochs"] * NUM_TRAIN // images):
        gradients = [flat.gradient(shares[k][turn], held[k]) for k in workers]
        factor = rate.factor(turn * images)
        held = [optimizers[k].step(held[k], gradients[k], factor) for k in workers]
        if turn % 2:
            held = [torch.stack(held).mean(0)] * len(workers)
        for k in workers:
            changes[k].append((images, held[k]))
    return flat.named(torch.stack([in_numpy(flat.first, each) for each in changes]).mean(0))


def center(config, seen):
    """Of elastic averaging: the server's, by the order in which workers came to it."""
    flat, scheme = Flat(config), config["scheme"]
    workers, held, changes = owners(config, seen, flat), flat.first, []
    for index, _ in seen.servers[0].pushes:
        worker = workers[index]
        for _ in range(scheme["period"]):
            worker.end()
        worker.begin()
        moved = scheme["elasticity"] * (worker.held - held)
        worker.held, held = worker.held - moved, held + moved
        changes.append((scheme["period"] * config["batch_size"], held))
    return flat.named(in_numpy(flat.first, changes))


SCHEMES = [
    ("sync_allreduce", {}, together),
    ("sync_parameter_server", {"servers": 2}, at_servers),
    ("async_parameter_server", {"servers": 2}, at_servers),
    ("elastic_averaging", {"period": 3}, center),
    ("local_sgd", {"period": 2}, local),
    ("independent", {}, at_each_worker),
]


@pytest.mark.parametrize("clock", CLOCKS)
def test_what_is_evaluated_is_the_average_of_all_weights(clock, tmp_path):
    configs = [averaging(*each, DECAY, **CLOCKS[clock]) for *each, _ in SCHEMES]
    found = run_together(configs, tmp_path)
    for (scheme, _, expected), config, (seen, weights) in zip(SCHEMES, configs, found, strict=True):
        assert_close(
            *(weights, expected(config, seen)), rtol=1e-12, atol=1e-14, msg=f"{scheme}: {{}}".format
        )


@pytest.mark.parametrize(("scheme", "settings", "expected"), [SCHEMES[0], SCHEMES[2]])
def test_the_average_of_split_workers_is_that_of_whole_ones(scheme, settings, expected, tmp_path):
    """Synchronous processes average their slices, servers the whole weights."""
    config = averaging(scheme, settings, DECAY, model__shards=2)
    seen, weights = run_tiny(config, tmp_path)
    assert_close(weights, expected(config, seen), rtol=1e-12, atol=1e-14)
    assert all(worker.activation_bytes_sent > 0 for worker in seen.workers)


@pytest.mark.parametrize(
    ("scheme", "settings"),
    [(name, settings) for name, settings, _ in SCHEMES]
    + [("gossip", {}), ("post_local_sgd", {}), ("sync_then_async", {}), ("mixed", {})],
)
def test_a_decay_of_zero_evaluates_the_weights_themselves(scheme, settings, tmp_path):
    virtual = CLOCKS["virtual"]
    one, plain = run_tiny(averaging(scheme, settings, None, **virtual), tmp_path)
    two, averaged = run_tiny(averaging(scheme, settings, 0, **virtual), tmp_path)
    assert all(torch.equal(averaged[name], plain[name]) for name in plain)
    for without, both in zip(one.training[0].scores, two.training[0].scores, strict=True):
        assert (without.top1, without.averaged_top1) == (both.averaged_top1, None)
    told = ["moving average" in seen.training[0].evaluated for seen in (one, two)]
    assert told == [False, True]


@pytest.mark.parametrize("clock", CLOCKS)
def test_an_average_changes_no_score_of_the_weights(clock, tmp_path):
    """By a share of 1e-9 it stays at the first weights; one worker leaves nothing to chance."""
    scores = []
    for decay in (None, 1 - 1e-9):
        config = averaging("sync_allreduce", {}, decay, **CLOCKS[clock]) | {"workers": 1}
        seen, weights = run_tiny(config, tmp_path)
        (report,) = seen.training
        scores.append([(each.top1, each.loss) for each in (*report.scores, report.test)])
    assert scores[0] == scores[1]
    flat = Flat(config)
    assert_close(weights, flat.named(flat.first), rtol=0, atol=1e-6)


def averaging(scheme, settings, decay, **others):
    config = tiny_point(scheme, 2, 8, training__ema_decay=decay, **others)
    config["scheme"] |= settings
    return config


def test_weights_that_do_not_change_stay():
    weights = [torch.randn(5, dtype=torch.float64), torch.randn(3, dtype=torch.float64)]
    average = MovingAverage(weights, 0.9)
    for images in (1, 7, 1000):
        average.update(weights, images)
    assert all(map(torch.equal, average.weights, weights))


@pytest.mark.parametrize("images", [[64], [32, 32], [1] * 64])
def test_the_share_that_is_kept_goes_by_samples_whatever_the_updates(images):
    average = MovingAverage([torch.ones(1, dtype=torch.float64)], decay_per_sample(0.9, 32))
    for each in images:
        average.update([torch.zeros(1, dtype=torch.float64)], each)
    assert average.weights[0].item() == pytest.approx(0.9**2, rel=1e-12)


def test_what_is_evaluated_is_said():
    served = evaluated_weights(AsyncParameterServer(1), averaged=True)
    assert served.startswith("weights at the servers")
    assert served.endswith("beside them their moving average, by samples")
    own = evaluated_weights(LocalSGD(8), averaged=False)
    assert own.startswith("mean over workers' weights")


def test_weights_of_eight_bits_of_precision_are_not_averaged():
    settings = ("data=synthetic", "training.ema_decay=0.999", "training.precision=bf16-true")
    with pytest.raises(SettingError, match=r"^training\.ema_decay: .*bf16-true"):
        point_of(dict(composed(settings, Path(__file__).parents[2]).values))
