"""All collectives against the sum, between real processes; and the bytes that they really send."""

import subprocess
import sys

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from paceline.errors import SettingError
from paceline.exchange.collectives import COLLECTIVES, collective
from paceline.timing.profile import ClusterProfile, Link
from tests.launching import launch

CASES = 10
LENGTH = 1_048_583  # a prime
BYTES = 4 * LENGTH
ALL_RIGHT = dict.fromkeys(COLLECTIVES, True)
SCHEDULED = [name for name in COLLECTIVES if name != "native"]


def drawn_cases(workers):
    """Lengths and dtypes: 0, 1, fewer than workers, any, and some that are cut into pieces."""
    dtypes = st.sampled_from(["float32", "float64", "bfloat16"])
    lengths = st.integers(0, workers) | st.integers(0, 100) | st.integers(30_000, 40_000)
    cases = [(length, dtype) for length in (0, 1) for dtype in ("float32", "bfloat16")]

    @settings(max_examples=CASES, derandomize=True, database=None, phases=[Phase.generate])
    @given(st.tuples(lengths, dtypes))
    def draw(case):
        cases.append(case)

    draw()
    return cases


@pytest.mark.parametrize("workers", [1, 2, 3, 5, 8])  # as schedules are tried with any number
def test_every_collective_sums_any_length_and_dtype_as_native_does(workers, tmp_path):
    """Integers exactly, other numbers to the rounding of any order; the same bits everywhere."""
    cases = drawn_cases(workers)
    assert len(cases) >= CASES
    target = "tests.exchange.collective_cases:sums"
    seen = launch(target, (cases,), workers=workers, servers=0, log_folder=tmp_path)
    for number, case in enumerate(cases):
        first, *others = [worker[number] for worker in seen]
        assert {name: right for name, (right, _) in first.items()} == ALL_RIGHT, case
        assert [other == first for other in others] == [True] * (workers - 1), case


def test_some_of_the_processes_can_meet_alone(tmp_path):
    target = "tests.exchange.collective_cases:sums_in_a_part"
    seen = launch(target, (), workers=4, servers=0, log_folder=tmp_path)
    assert {name: right for name, (right, _) in seen[1].items()} == ALL_RIGHT
    assert seen == [None, seen[1], None, seen[1]]


@pytest.fixture(scope="module", params=[2, 4, 8])
def counted(request, tmp_path_factory):
    """Bytes of each collective over so many workers."""
    folder = tmp_path_factory.mktemp("traffic")
    target = "tests.exchange.collective_cases:traffic"
    return launch(target, (LENGTH,), workers=request.param, servers=0, log_folder=folder)


def formula(name, workers):
    """Bytes that pass the busiest links one after the other: seconds at one byte a second."""
    return collective(name).seconds(
        BYTES, workers, ClusterProfile(Link(0, 1), Link(0, 1), None, 0, 1)
    )


def busiest_bytes(rounds):
    """What the busiest link carries in all rounds; `rounds`: of each worker, (sent, received).

    A link carries both directions at once, and a round lasts as long as its busiest worker.
    """
    return sum(max(max(counted) for counted in at_once) for at_once in zip(*rounds, strict=True))


@pytest.mark.parametrize("name", SCHEDULED)
def test_the_busiest_links_carry_what_the_formula_says(name, counted):
    rounds = [worker[name]["rounds"] for worker in counted]
    assert busiest_bytes(rounds) == pytest.approx(formula(name, len(counted)), rel=0.05)


@pytest.mark.parametrize("name", SCHEDULED)
def test_the_wire_counts_what_is_declared_and_what_the_kernel_counts(name, counted):
    declared = collective(name).volumes(len(counted), LENGTH)
    for worker, volume in zip(counted, declared, strict=True):
        assert worker[name]["wire"] == volume.in_bytes(4)
        assert worker[name]["kernel"] == pytest.approx(worker[name]["wire"], rel=0.01)
        sent, received = zip(*worker[name]["rounds"], strict=True)
        assert (sum(sent), sum(received)) == worker[name]["wire"]


def test_native_is_a_ring(counted):
    declared = collective("ring").volumes(len(counted), LENGTH)
    for worker, volume in zip(counted, declared, strict=True):
        assert worker["native"]["kernel"] == pytest.approx(volume.in_bytes(4), rel=0.01)


def test_no_worker_sends_more_than_twice_the_vector_by_multicolor(counted):
    assert max(sum(worker["multicolor"]["wire"][:1]) for worker in counted) <= 2 * BYTES


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
