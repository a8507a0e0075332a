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
OURS = [name for name in COLLECTIVES if name != "native"]
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


@pytest.fixture(scope="module")
def native(seen):
    kept, *_ = seen["native", "none"][0]
    assert [tuple(gradient.shape) for gradient in tensors(kept)] == SHAPES
    return tensors(kept)


@pytest.mark.parametrize("way", WAYS, ids="-".join)
def test_all_workers_end_with_the_same_gradients(way, seen):
    first, *others = (kept for kept, *_ in seen[way])
    assert others == [first] * (WORKERS - 1)


@pytest.mark.parametrize("name", OURS)
def test_gradients_are_the_mean_that_ddp_itself_forms(name, seen, native):
    for ours, theirs in zip(tensors(seen[name, "none"][0][0]), native, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("name", OURS)
def test_every_bucket_of_every_step_went_over_the_wire(name, seen):
    """As many bytes as declared."""
    num_bytes = 8 * sum(torch.Size(shape).numel() for shape in SHAPES)
    _, buckets, _ = seen[name, "none"][0]
    assert len(buckets) >= 2 * STEPS  # so that their order matters
    assert 8 * sum(buckets) == STEPS * num_bytes
    declared = [collective(name).volumes(WORKERS, length) for length in buckets]
    sent = [bytes_sent for _, _, bytes_sent in seen[name, "none"]]
    assert sent == [8 * sum(each[w].sent for each in declared) for w in range(WORKERS)]


@pytest.mark.parametrize("half", ["fp16", "bf16"])
@pytest.mark.parametrize("name", COLLECTIVES)
def test_halves_are_rounded_and_send_a_quarter_of_float64(name, half, seen, native):
    kept, buckets, sent = seen[name, half][0]
    assert len(buckets) >= 2 * STEPS
    assert 4 * sent == seen[name, "none"][0][2]  # which `native` does not count
    precision = torch.finfo(torch.float16 if half == "fp16" else torch.bfloat16)
    largest = max(gradient.abs().max() for gradient in native)
    for rounded, exact in zip(tensors(kept), native, strict=True):
        off = (rounded - exact).abs().max()
        assert 0 < off <= 2 * WORKERS * precision.eps * largest
        as_half = rounded.to(torch.float16 if half == "fp16" else torch.bfloat16)
        assert torch.equal(as_half.double(), rounded)


def test_a_worker_that_fails_in_backward_ends_the_others(tmp_path):
    target = "tests.exchange.collective_cases:failing"
    with pytest.raises(ProcessFailure, match="worker 1: ValueError: a bad gradient"):
        launch(target, (), workers=2, servers=0, log_folder=tmp_path)
