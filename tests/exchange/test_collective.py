"""All collectives between real processes: against the sum, by the bytes that they really send, and
as hooks of DDP, whose buckets pass through them or a compression on a CPU.
"""

import itertools
import random
import subprocess
import sys
from typing import get_args

import pytest
import torch

from paceline.cluster.supervisor import ProcessFailure
from paceline.errors import SettingError
from paceline.exchange.collectives import COLLECTIVES, collective
from paceline.scheme.rule import Compression
from paceline.timing.profile import ClusterProfile, Link
from tests.exchange.collective_cases import SHAPES, STEPS
from tests.launching import launch

LENGTH = 1_048_583  # a prime
BYTES = 4 * LENGTH
ALL_RIGHT = dict.fromkeys(COLLECTIVES, True)
# groups of processes, as schedules are tried with any number
SUMMED = [*(tuple(range(workers)) for workers in (1, 2, 3, 5, 8)), (1, 3)]
COUNTED = [tuple(range(workers)) for workers in (2, 4, 8)]
HOOKED = (0, 1, 2)
WAYS = [*itertools.product(COLLECTIVES, get_args(Compression))]


def drawn_cases(workers):
    """Lengths and dtypes: 0, 1, fewer than workers, any, and some that are cut into pieces."""
    dice = random.Random(workers)
    cases = [(length, dtype) for length in (0, 1) for dtype in ("float32", "bfloat16")]
    for least, most in 3 * [(0, workers), (0, 100), (30_000, 40_000)]:
        dtype = dice.choice(["float32", "float64", "bfloat16"])
        cases.append((dice.randint(least, most), dtype))
    return cases


DRAWN = {members: drawn_cases(len(members)) for members in SUMMED}


@pytest.fixture(scope="module")
def met(tmp_path_factory):
    """Sums, bytes and gradients: by the group, what each of its members found."""
    asked, folder = (DRAWN, COUNTED, LENGTH, HOOKED, WAYS), tmp_path_factory.mktemp("groups")
    target = "tests.exchange.collective_cases:meet"
    found = launch(target, asked, workers=8, servers=0, log_folder=folder)
    return [
        {members: [each[members] for each in kind if members in each] for members in groups}
        for kind, groups in zip(zip(*found, strict=True), (SUMMED, COUNTED, [HOOKED]), strict=True)
    ]


@pytest.mark.parametrize("members", SUMMED, ids=str)
def test_every_collective_sums_any_length_and_dtype_as_native_does(members, met):
    """Integers exactly, other numbers to the rounding of any order; the same bits everywhere."""
    seen, cases = met[0][members], DRAWN[members]
    assert len(seen) == len(members)
    for number, case in enumerate(cases):
        first, *others = [worker[number] for worker in seen]
        assert {name: right for name, (right, _) in first.items()} == ALL_RIGHT, case
        assert [other == first for other in others] == [True] * len(others), case


@pytest.mark.parametrize("members", COUNTED, ids=len)
@pytest.mark.parametrize("name", COLLECTIVES)
def test_the_kernel_counts_what_is_declared_and_the_busiest_links_carry_what_the_formula_says(
    name, members, met
):
    """Of native as of a ring, whose rounds are gloo's. A link carries both directions at once; a
    round lasts as long as its busiest worker: seconds at one byte a second.
    """
    by, counted = collective(name if name != "native" else "ring"), met[1][members]
    for worker, volume in zip(counted, by.volumes(len(members), LENGTH), strict=True):
        assert worker[name]["kernel"] == pytest.approx(volume.in_bytes(4), rel=0.01)
        if name != "native":
            assert worker[name]["wire"] == volume.in_bytes(4)
            sent, received = zip(*worker[name]["rounds"], strict=True)
            assert (sum(sent), sum(received)) == worker[name]["wire"]
    if name != "native":
        rounds = zip(*(worker[name]["rounds"] for worker in counted), strict=True)
        busiest = sum(max(map(max, at_once)) for at_once in rounds)
        free = ClusterProfile(Link(0, 1), Link(0, 1), None, 0, 1)
        assert busiest == pytest.approx(by.seconds(BYTES, len(counted), free), rel=0.05)


@pytest.fixture(scope="module")
def hooked(met):
    """(collective, compression) -> gradients, lengths of buckets, bytes sent, of each worker."""
    return dict(zip(WAYS, zip(*met[2][HOOKED], strict=True), strict=True))


def tensors(gradients):
    return [torch.tensor(gradient, dtype=torch.float64) for gradient in gradients]


@pytest.mark.parametrize("name", COLLECTIVES)
def test_gradients_are_the_mean_that_ddp_itself_forms_and_every_bucket_is_sent(name, hooked):
    """To all workers the same, with as many bytes as declared, which `native` does not count."""
    native, found = tensors(hooked["native", "none"][0][0]), hooked[name, "none"]
    workers = len(HOOKED)
    assert [tuple(gradient.shape) for gradient in native] == SHAPES
    assert [kept for kept, *_ in found] == [found[0][0]] * workers
    torch.testing.assert_close(tensors(found[0][0]), native, rtol=1e-13, atol=1e-13)
    buckets = found[0][1]
    assert len(buckets) >= 2 * STEPS  # so that their order matters
    assert sum(buckets) == STEPS * sum(torch.Size(shape).numel() for shape in SHAPES)
    declared = [collective(name).volumes(workers, length) for length in buckets]
    sent = [8 * sum(each[worker].sent for each in declared) for worker in range(workers)]
    assert [each for *_, each in found] == (sent if name != "native" else [0] * workers)


@pytest.mark.parametrize("half", ["fp16", "bf16"])
@pytest.mark.parametrize("name", COLLECTIVES)
def test_halves_are_rounded_and_send_a_quarter_of_float64(name, half, hooked):
    (kept, buckets, sent), *others = hooked[name, half]
    assert [each for each, *_ in others] == [kept] * len(others)
    assert len(buckets) >= 2 * STEPS
    assert 4 * sent == hooked[name, "none"][0][2]
    dtype = torch.float16 if half == "fp16" else torch.bfloat16
    native = tensors(hooked["native", "none"][0][0])
    largest = max(gradient.abs().max() for gradient in native)
    for rounded, exact in zip(tensors(kept), native, strict=True):
        off = (rounded - exact).abs().max()
        assert 0 < off <= 2 * len(HOOKED) * torch.finfo(dtype).eps * largest
        assert torch.equal(rounded.to(dtype).double(), rounded)


def test_a_worker_that_fails_in_backward_ends_the_others(tmp_path):
    target = "tests.exchange.collective_cases:failing"
    with pytest.raises(ProcessFailure, match="worker 1: ValueError: a bad gradient"):
        launch(target, (), workers=2, servers=0, log_folder=tmp_path)


def test_a_collective_that_is_not_known_is_named():
    with pytest.raises(SettingError, match=r"scheme.collective: there is no star; .* ring, tree"):
        collective("star")


def test_costs_need_no_torch():
    code = (
        "import sys; from paceline.exchange.collectives import collective, COLLECTIVES; "
        "[collective(name) for name in COLLECTIVES]; print('torch' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
