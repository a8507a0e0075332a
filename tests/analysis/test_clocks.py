"""The virtual clock against others: pairs of runs, and verdicts on them."""

import math

import pytest

from paceline.analysis.clocks import clock_agreement, clocks
from tests.made_reports import fail, make_run

AXES = ["scheme", "workers", "cluster", "seed"]


def clock(kind, seed=0, speed=100.0, stale=2.0, test=0.8, **changes):
    return make_run(
        seed=seed,
        kind=kind,
        cluster="virtual" if kind == "virtual" else "local",
        images_per_second=speed,
        staleness_mean=stale,
        test_top1=test,
        **changes,
    )


def only_row(table):
    (row,) = table.to_dict("records")
    return row


def test_clocks_are_compared_seed_by_seed(made):
    runs = [clock("paced", 0), clock("paced", 1, speed=200.0, stale=4.0, test=0.7)]
    runs += [clock("virtual", 0, 110.0, 3.0, 0.81), clock("virtual", 1, 180.0, 5.0, 0.68)]
    row = only_row(clocks(made(runs, axes=AXES)))
    assert (row["kind"], row["against"], row["against_cluster"]) == ("virtual", "paced", "local")
    assert row["images_per_second_ratio_mean"] == pytest.approx(math.sqrt(1.1 * 0.9))
    assert row["images_per_second_ratio_high"] == pytest.approx(
        math.sqrt(1.1 * 0.9) * (1.1 / 0.9) ** (12.7062047 / 2)
    )
    assert row["staleness_ratio_mean"] == pytest.approx((3 / 2 + 5 / 4) / 2)
    assert row["staleness_difference_n"] == 0
    assert row["test_top1_difference_mean"] == pytest.approx(-0.005)
    assert row["test_top1_difference_n"] == 2


@pytest.mark.parametrize("stale", [0.0, 0.04])
def test_little_staleness_has_a_difference_and_no_ratio(made, stale):
    runs = [clock("paced", stale=stale), clock("virtual", stale=0.5)]
    row = only_row(clocks(made(runs, axes=AXES)))
    assert row["staleness_difference_mean"] == pytest.approx(0.5 - stale)
    assert (row["staleness_difference_n"], row["staleness_ratio_n"]) == (1, 0)


def test_every_other_axis_has_to_be_equal(made):
    axes = [*AXES, "cluster.server_seconds"]
    slow, fast = ({"cluster.server_seconds": value} for value in (0.01, 0.0))
    runs = [clock("paced", **slow), clock("paced", **fast, speed=50.0)]
    runs += [clock("virtual", **slow), clock("virtual", workers=2, **fast)]
    row = only_row(clocks(made(runs, axes=axes)))
    assert row["cluster.server_seconds"] == 0.01
    assert row["images_per_second_ratio_mean"] == 1.0


def test_an_axis_that_implies_the_clock_needs_not_be_equal(made):
    axes = ["scheme", "cluster.clock", "cluster.server_seconds", "seed"]
    runs = [
        clock(kind, **{"cluster.clock": name, "cluster.server_seconds": server})
        for kind, name in (("measured", "wall"), ("virtual", "virtual"))
        for server in (0.0, 0.01)
    ]
    table = clocks(made(runs, axes=axes))
    assert list(table["against"]) == ["measured", "measured"]
    assert list(table["against_cluster.clock"]) == ["wall", "wall"]
    assert list(table["cluster.server_seconds"]) == [0.0, 0.01]


def test_what_did_not_finish_is_not_paired(made):
    row = only_row(clocks(made([clock("paced"), fail(clock("virtual"), "diverged")], axes=AXES)))
    assert row["images_per_second_ratio_n"] == 0
    assert math.isnan(row["test_top1_difference_mean"])


@pytest.mark.parametrize("kind", ["paced", "virtual"])
def test_one_clock_has_a_header_only(made, kind):
    table = clocks(made([clock(kind)], axes=AXES))
    assert table.empty
    assert "against" in table


def twins(workers, ratio=1.0, stale=(2.0, 2.0), points=(0.0, 0.0)):
    return [
        make_run(
            "async_parameter_server",
            workers,
            32,
            seed,
            kind=kind,
            cluster=kind,
            key=f"{kind}{workers}{seed}",
            images_per_second=1000.0 * (ratio if kind == "virtual" else 1),
            staleness_mean=stale[kind == "virtual"],
            test_top1=0.8 + (points[seed] if kind == "virtual" else 0),
        )
        for seed in (0, 1)
        for kind in ("paced", "virtual")
    ]


PAIRS = {
    "images_per_second": (twins(2, 1.1) + twins(4, 0.5) + twins(8, 1.2), "ratio"),
    "staleness_mean": (twins(2, stale=(0.0, 0.05)) + twins(4, stale=(0.0, 0.06)), "difference"),
    "test_top1": (twins(2, points=(-0.05, 0.05)) + twins(4, points=(-0.001, 0.001)), "difference"),
}


@pytest.mark.parametrize(
    ("what", "kept", "expected"),
    [
        ("images_per_second", None, {4: "outside", 8: "outside", 2: "within"}),  # furthest first
        ("staleness_mean", None, {4: "outside", 2: "within"}),  # 0.05 updates are as much as 10 %
        ("test_top1", None, {4: "within"}),  # by its interval, at the most workers
        ("test_top1", 4, {2: "outside"}),
        ("test_top1", 2, {2: "unknown"}),
    ],
)
def test_clocks_agree_within_a_limit_of_each_number(made, what, kept, expected):
    runs, measure = PAIRS[what]
    table = clock_agreement(made(runs[:kept], axes=AXES))
    rows = table[table["what"] == what]
    assert [*zip(rows["workers"], rows["verdict"], strict=True)] == [*expected.items()]
    assert set(rows["measure"]) == {measure}
