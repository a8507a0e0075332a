"""Compressed gradients: against the algorithms as K workers carry them out, each by itself."""

import pytest
import torch
from torch.testing import assert_close

from paceline.clock.run_spec import RunSpec
from paceline.clock.virtual.compression import OneBit, PowerSGD
from paceline.errors import SettingError
from paceline.prediction.predict import timed_clock
from paceline.scheme.sync_allreduce import SyncAllReduce
from paceline.timing.profile import ClusterProfile, Link
from paceline.timing.step_times import StepTimes
from tests.clock.references import Flat, Rate, images_per_update, rule_of
from tests.clock.virtual.trained import train
from tests.tiny import CLOCKS, NUM_TRAIN, batches_of, point_of, run_tiny, tiny_point

WORKERS = 4
SLOW = ClusterProfile(Link(0.0, 100.0), Link(0.0, 100.0), 1, 0.0, 100.0)


class PowerSGDOfWorkers:
    """Algorithm 1 of Vogels 2019 with rank 1: two sums over workers, and an error for each."""

    def __init__(self, shapes, like, seed):
        self._shapes, self._turn = shapes, 0
        generator = torch.Generator().manual_seed(seed)
        columns = [s.numel() // (s[0] if len(s) > 1 else 1) for s in shapes]
        self._rights = [torch.randn(n, generator=generator, dtype=like.dtype) for n in columns]
        self._errors = [torch.zeros_like(like) for _ in range(WORKERS)]

    def mean(self, gradients):
        self._turn += 1
        if self._turn <= 2:
            return torch.stack(gradients).mean(0)
        fed = [g + e for g, e in zip(gradients, self._errors, strict=True)]
        parts = zip(*(each.split([s.numel() for s in self._shapes]) for each in fed), strict=True)
        mean = torch.cat([self._of_tensor(n, each) for n, each in enumerate(parts)])
        self._errors = [each - mean for each in fed]
        return mean

    def _of_tensor(self, n, own):
        shape = self._shapes[n]
        if shape != (5, 16):  # no other gets shorter by more than half
            return torch.stack(own).mean(0)
        matrices = [each.view(shape) for each in own]
        left = sum(matrix @ self._rights[n] for matrix in matrices)
        left = left / left.norm()
        self._rights[n] = sum(matrix.T @ left for matrix in matrices) / WORKERS
        return torch.outer(left, self._rights[n]).flatten()


class OneBitOfWorkers:
    def __init__(self, shapes, like, seed):
        self._sizes = [shape.numel() for shape in shapes]
        self._errors = [torch.zeros_like(like) for _ in range(WORKERS + 1)]

    def mean(self, gradients):
        sent = [self._signs(k, gradient) for k, gradient in enumerate(gradients)]
        return self._signs(WORKERS, torch.stack(sent).mean(0))

    def _signs(self, index, value):
        fed = value + self._errors[index]
        sent = torch.cat([p.sign() * p.abs().sum() / len(p) for p in fed.split(self._sizes)])
        self._errors[index] = fed - sent
        return sent


@pytest.mark.parametrize(
    ("name", "rule"), [("power_sgd", PowerSGDOfWorkers), ("one_bit", OneBitOfWorkers)]
)
def test_a_run_is_that_of_workers_who_compress(name, rule, tmp_path):
    settings = {"scheme__compression": name, **CLOCKS["virtual"]}
    config = tiny_point("sync_allreduce", WORKERS, 4, **settings)
    _, weights = run_tiny(config, tmp_path)
    flat, workers = Flat(config), range(WORKERS)
    shares = [batches_of(config, worker) for worker in workers]
    optimizer, held = rule_of(flat.options, flat.first), flat.first.clone()
    compressed = rule([*flat.shapes.values()], flat.first, config["seed"])
    rate = Rate(config, images_per_update(config))
    for turn in range(config["training"]["epochs"] * NUM_TRAIN // (4 * WORKERS)):
        mean = compressed.mean([flat.gradient(shares[k][turn], held) for k in workers])
        held = optimizer.step(held, mean, rate.factor(turn * 4 * WORKERS))
    assert_close(weights, flat.named(held), rtol=1e-10, atol=1e-13)


@pytest.mark.slow
def test_half_precision_is_that_of_torchs_hook_to_a_rounding(tmp_path):
    ends = {}
    for clock, compression in [("wall", "bf16"), ("virtual", "bf16"), ("virtual", "none")]:
        folder = tmp_path / f"{clock} {compression}"
        folder.mkdir()
        settings = {"scheme__compression": compression, **CLOCKS[clock]}
        config = tiny_point("sync_allreduce", 2, 8, **settings)
        ends[clock, compression] = run_tiny(config, folder)[1]["1.weight"]
    torchs, ours, exact = ends.values()
    assert (ours - torchs).norm() < (ours - exact).norm() < 0.01 * exact.norm()


def test_nothing_is_lost_by_error_feedback():
    generator = torch.Generator().manual_seed(0)
    shapes = [torch.Size([8, 9]), torch.Size([5])]
    like = torch.zeros(77, dtype=torch.float64)
    for made in (PowerSGD(shapes, like, 0), OneBit(shapes, like)):
        given, taken = torch.zeros_like(like), torch.zeros_like(like)
        for _ in range(20):
            gradients = torch.randn(3, 77, generator=generator, dtype=torch.float64)
            given += gradients.mean(0)
            for worker, gradient in enumerate(gradients):
                made.send(worker, gradient)
            mean = gradients.mean(0)
            made.receive(mean)
            taken += mean
        kept = made._errors
        if isinstance(made, OneBit):
            kept = kept[None] + sum(kept[worker] for worker in range(3)) / 3
        assert_close(taken + kept, given, rtol=1e-12, atol=1e-12)


def test_gradients_of_zero_leave_finite_numbers_that_learn_again():
    shapes, like = [torch.Size([8, 9])], torch.zeros(72, dtype=torch.float64)
    made = PowerSGD(shapes, like, 0)
    for _ in range(5):
        mean = like.clone()
        made.receive(mean)
        assert not mean.any()
    mean = torch.outer(torch.arange(8.0), torch.arange(9.0)).double().flatten()
    given = mean.clone()
    made.receive(mean)
    assert_close(mean, given)  # of rank 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1e-10, 1.0])
def test_what_power_sgd_applies_is_never_longer_than_what_it_was_given(dtype, scale):
    generator = torch.Generator().manual_seed(0)
    made = PowerSGD([torch.Size([8, 9])], torch.zeros(72, dtype=dtype), 0)
    for turn in range(1, 9):
        mean = torch.randn(72, generator=generator, dtype=dtype) * scale
        made.receive(mean)
        assert mean.abs().max() <= 9 * turn * scale
    assert scale < 1e-15 or mean.abs().max() > 0.01 * scale


def test_messages_are_as_long_as_compressed_ones():
    """80 + 5 + 15 + 3 weights of 8 bytes; a matrix of 5 x 16 becomes 5 + 16 numbers."""
    sent, ended = {}, {}
    for name in ("none", "bf16", "power_sgd", "one_bit"):
        strategy, _ = train(SyncAllReduce(compression=name), 2, 20, profile=SLOW)
        sent[name] = strategy.clock.workers[0].bytes_sent
        ended[name] = strategy.clock.kernel.now
    assert sent["none"] == 10 * 103 * 8
    assert sent["bf16"] == 10 * 103 * 2
    assert sent["power_sgd"] == (2 * 103 + 8 * 44) * 8
    assert sent["one_bit"] == 10 * 13
    assert ended["none"] > ended["power_sgd"] > ended["bf16"] > ended["one_bit"]


def test_what_cannot_be_had_is_refused_in_one_line():
    sized = {"_target_": "paceline.timing.workload.SizedNetwork", "name": "sized"}
    sized |= {"num_bytes": 10**6, "num_statistics_bytes": 0}
    power_sgd = {"scheme__compression": "power_sgd", **CLOCKS["virtual"]}
    for setting, settings in {
        "scheme.compression": {"scheme__compression": "one_bit"},
        "workload": {**power_sgd, "workload": sized},
    }.items():
        with pytest.raises(SettingError) as refused:
            point_of(tiny_point("sync_allreduce", 2, 8, **settings))
        assert refused.value.setting == setting
        assert "\n" not in str(refused.value)
    scheme, run = SyncAllReduce(compression="power_sgd"), RunSpec(num_workers=2)
    with pytest.raises(SettingError, match=r"^scheme\.compression: .* depend on the shapes"):
        timed_clock(scheme, run, SLOW, StepTimes(), 3)
    timed_clock(SyncAllReduce(compression="one_bit"), run, SLOW, StepTimes(), 3)
