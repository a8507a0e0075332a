"""DDP's buckets really pass through the chosen collective or compression, on a CPU."""

import itertools
from typing import get_args

import pytest
import torch

from paceline.cluster.supervisor import ProcessFailure
from paceline.exchange.collectives import COLLECTIVES, collective
from paceline.scheme.rule import Compression
from tests.exchange.collective_cases import SHAPES, STEPS
from tests.launching import launch

WORKERS = 3
WAYS = [*itertools.product(COLLECTIVES, get_args(Compression))]


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """(collective, compression) -> gradients, lengths of buckets, bytes sent, of each worker."""
    folder = tmp_path_factory.mktemp("hooks")
    target = "tests.exchange.collective_cases:gradients"
    of_workers = launch(target, (WAYS,), workers=WORKERS, servers=0, log_folder=folder)
    return {way: [worker[number] for worker in of_workers] for number, way in enumerate(WAYS)}


def tensors(gradients):
    return [torch.tensor(gradient, dtype=torch.float64) for gradient in gradients]


@pytest.mark.parametrize("name", COLLECTIVES)
def test_gradients_are_the_mean_that_ddp_itself_forms_and_every_bucket_is_sent(name, seen):
    """To all workers the same, with as many bytes as declared, which `native` does not count."""
    native, found = tensors(seen["native", "none"][0][0]), seen[name, "none"]
    assert [tuple(gradient.shape) for gradient in native] == SHAPES
    assert [kept for kept, *_ in found] == [found[0][0]] * WORKERS
    torch.testing.assert_close(tensors(found[0][0]), native, rtol=1e-13, atol=1e-13)
    buckets = found[0][1]
    assert len(buckets) >= 2 * STEPS  # so that their order matters
    assert sum(buckets) == STEPS * sum(torch.Size(shape).numel() for shape in SHAPES)
    declared = [collective(name).volumes(WORKERS, length) for length in buckets]
    sent = [8 * sum(each[worker].sent for each in declared) for worker in range(WORKERS)]
    assert [each for *_, each in found] == (sent if name != "native" else [0] * WORKERS)


@pytest.mark.parametrize("half", ["fp16", "bf16"])
@pytest.mark.parametrize("name", COLLECTIVES)
def test_halves_are_rounded_and_send_a_quarter_of_float64(name, half, seen):
    (kept, buckets, sent), *others = seen[name, half]
    assert [each for each, *_ in others] == [kept] * (WORKERS - 1)
    assert len(buckets) >= 2 * STEPS
    assert 4 * sent == seen[name, "none"][0][2]
    dtype = torch.float16 if half == "fp16" else torch.bfloat16
    native = tensors(seen["native", "none"][0][0])
    largest = max(gradient.abs().max() for gradient in native)
    for rounded, exact in zip(tensors(kept), native, strict=True):
        off = (rounded - exact).abs().max()
        assert 0 < off <= 2 * WORKERS * torch.finfo(dtype).eps * largest
        assert torch.equal(rounded.to(dtype).double(), rounded)


def test_a_worker_that_fails_in_backward_ends_the_others(tmp_path):
    target = "tests.exchange.collective_cases:failing"
    with pytest.raises(ProcessFailure, match="worker 1: ValueError: a bad gradient"):
        launch(target, (), workers=2, servers=0, log_folder=tmp_path)
