"""The lemmas of Zou 2017: their examples, their inverses, and where their premise holds."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.command.plan_view import lemma_view
from paceline.errors import SettingError
from paceline.exchange.find_collective import collective
from paceline.prediction.lemma import (
    efficiency,
    largest_overhead,
    lemma_rows,
    limit_of_speedup,
    most_workers,
    servers_needed,
    workers_served,
)
from paceline.record.point import Point
from paceline.study.compose import composed_each
from paceline.timing.profile import ClusterProfile, Link
from tests.command.test_plan_view import shown
from tests.tiny import CONF

OVERHEADS = st.floats(1e-3, 10)
PROFILE = ClusterProfile(
    link=Link(0, 1e9),
    node_link=Link(0, math.inf),
    workers_per_node=1,
    server_seconds=0,
    server_bandwidth=math.inf,
)


def test_examples_of_workers():
    assert largest_overhead(0.8, 4) == pytest.approx(0.2 / 2.2)  # 9.09 %
    assert 4 * efficiency(0.2 / 2.2, 4) == pytest.approx(3.2)
    assert limit_of_speedup(0.2 / 2.2) == pytest.approx(12)


@pytest.mark.parametrize(
    ("overhead", "speedups"),
    [(0.01, [1.98, 3.88, 7.48, 13.93]), (0.1, [1.83, 3.14, 4.89, 6.77])],
)
def test_speedups_of_2_4_8_16(overhead, speedups):
    found = [round(n * efficiency(overhead, n), 2) for n in (2, 4, 8, 16)]
    assert found == speedups


def test_example_of_servers():
    assert servers_needed(240e6, 8, 1.25e9, 1.0) == 4  # 3.07
    assert workers_served(240e6, 4, 1.25e9, 1.0) == 10  # 10.4


@given(OVERHEADS, st.integers(2, 1000))
def test_overhead_and_workers_invert_efficiency(overhead, workers):
    alpha = efficiency(overhead, workers)
    assert largest_overhead(alpha, workers) == pytest.approx(overhead)
    assert most_workers(alpha, overhead) == pytest.approx(workers)
    assert workers * alpha < limit_of_speedup(overhead)


@given(st.floats(1e6, 1e10), st.integers(1, 1000), st.floats(1e8, 1e11), st.floats(0.01, 10))
def test_fewest_servers_serve_the_workers_and_one_fewer_does_not(size, workers, rate, seconds):
    servers = servers_needed(size, workers, rate, seconds)
    assert workers_served(size, servers, rate, seconds) >= workers
    assert servers == 1 or workers_served(size, servers - 1, rate, seconds) < workers


def test_what_costs_nothing_has_no_limit():
    assert efficiency(0, 50) == 1
    assert most_workers(0.9, 0) == limit_of_speedup(0) == math.inf
    assert largest_overhead(0.25, 4) == math.inf


@pytest.mark.parametrize("workers", [3, 4, 16, 256])
def test_the_premise_holds_for_a_ring_and_not_for_one_server(workers):
    ring = overhead_growth("ring", workers)
    assert ring == pytest.approx(2 * (workers - 1) / workers, rel=1e-6)
    assert ring < 2
    server = overhead_growth("parameter_server", workers)
    assert server == pytest.approx(workers / 2)


def overhead_growth(name, workers):
    """Return the time of an all-reduce over `workers`, as a multiple of that over two."""
    of_so_many, of_two = (collective(name).seconds(10**9, n, PROFILE) for n in (workers, 2))
    return of_so_many / of_two


def rows(*overrides):
    points = [Point.of(e.config) for e in composed_each(overrides, CONF.parent)]
    found = lemma_rows(points, steps=10)
    return found, shown(lemma_view(found))


def test_the_lemma_beside_predictions_of_a_ring_and_a_server():
    common = ("cluster=titan", "workload=googlenet", "workers=2,16", "cluster.step_jitter=0")
    (two, sixteen), lines = rows(*common, "scheme.collective=ring")
    assert two.lemma == pytest.approx(two.predicted)
    assert sixteen.lemma == pytest.approx(sixteen.predicted, rel=0.02)
    assert sixteen.growth == pytest.approx(2 * 15 / 16, rel=0.01)
    for row in (two, sixteen):  # T_O / T_C, where one worker computes for all
        gain = row.point.workers * efficiency(row.overhead, row.point.workers)
        one = row.lemma / gain  # images/s of one worker with the whole batch
        assert one * (1 + row.overhead) == pytest.approx(two.lemma / 2 * (1 + 2 * two.overhead))
    (_, by_server), _ = rows(*common, "scheme.collective=parameter_server")
    assert by_server.growth == pytest.approx(8, rel=0.01)
    assert by_server.predicted < by_server.lemma
    (line,) = [line for line in lines if line.startswith("16 ")]
    assert line.split()[4:7] == [
        f"{most_workers(0.5, sixteen.overhead):,.0f}",
        f"{limit_of_speedup(sixteen.overhead):,.0f}",
        "times",
    ]


def test_servers_by_the_lemma_are_enough():
    overrides = ("cluster=titan", "workload=googlenet", "workers=32", "cluster.step_jitter=0")
    (row,), _ = rows(*overrides, "scheme=async_parameter_server", "scheme.servers=1")
    assert row.servers == 1  # GoogLeNet computes for 0.7 s
    overrides = (*overrides, "cluster.step_seconds=0.1")
    (row,), lines = rows(*overrides, "scheme=async_parameter_server", "scheme.servers=1")
    assert row.servers > 1
    assert row.predicted_servers > row.predicted
    assert row.served >= 32
    assert any(line.endswith(f" {row.served} workers") for line in lines)


def test_what_the_lemmas_compare_with_is_said():
    overrides = ("cluster=titan", "workload=googlenet", "workers=4", "scheme=mixed")
    with pytest.raises(SettingError, match=r"^scheme.group_size: the lemmas need .* of two"):
        rows(*overrides, "scheme.group_size=4")
