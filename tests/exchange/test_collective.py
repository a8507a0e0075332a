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


@pytest.mark.parametrize("name", COLLECTIVES)
def test_the_kernel_counts_what_is_declared_and_the_busiest_links_carry_what_the_formula_says(
    name, counted
):
    """Of native as of a ring, whose rounds are gloo's. A link carries both directions at once; a
    round lasts as long as its busiest worker: seconds at one byte a second.
    """
    by = collective(name if name != "native" else "ring")
    for worker, volume in zip(counted, by.volumes(len(counted), LENGTH), strict=True):
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
