"""The lemmas of Zou 2017 at examples, and their inverses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.prediction.cluster_plan import servers_needed
from papers.lemma import efficiency, largest_overhead


def test_examples_of_workers():
    assert largest_overhead(0.8, 4) == pytest.approx(0.2 / 2.2)  # 9.09 %
    assert 4 * efficiency(0.2 / 2.2, 4) == pytest.approx(3.2)


@pytest.mark.parametrize(
    ("overhead", "speedups"),
    [(0.01, [1.98, 3.88, 7.48, 13.93]), (0.1, [1.83, 3.14, 4.89, 6.77])],
)
def test_speedups_of_2_4_8_16(overhead, speedups):
    assert [round(n * efficiency(overhead, n), 2) for n in (2, 4, 8, 16)] == speedups


def test_example_of_servers():
    assert servers_needed(240e6, 8, 1.25e9, 1.0) == 4  # 3.07


@given(st.floats(1e-3, 10), st.integers(2, 1000))
def test_overhead_inverts_efficiency(overhead, workers):
    alpha = efficiency(overhead, workers)
    assert largest_overhead(alpha, workers) == pytest.approx(overhead)
