import pytest

from paceline.report.agreement_sentences import agreement
from paceline.report.page_tables import page_tables
from tests.made_reports import fail, make_run

AXES = ["scheme", "workers", "cluster", "seed"]
OTHER = "async_parameter_server"


def twins(scheme, workers, ratio=1.0, stale=(2.0, 2.0), points=(0.0, 0.0), seeds=(0, 1)):
    """Paced and virtual; `points` of top-1 by which the virtual seeds differ."""
    runs = []
    for seed in seeds:
        for kind, cluster in (("paced", "local"), ("virtual", "virtual")):
            there = kind == "virtual"
            run = make_run(scheme, workers, 32, seed, kind=kind, cluster=cluster)
            run["key"] = f"{scheme[:4]}{workers}{seed}{kind[0]}"
            run["images_per_second"] = 1000.0 * (ratio if there else 1)
            run["staleness_mean"] = stale[there]
            run["test_top1"] = 0.8 + (points[seed] / 100 if there else 0)
            runs.append(run)
    return runs


def said(findings, runs):
    return agreement(findings(runs, axes=AXES))


def test_all_within_ten_percent_names_the_furthest(findings):
    runs = twins("sync_allreduce", 1, 1.02, (0.0, 0.0)) + twins(OTHER, 2, 1.1, (2.0, 1.9))
    speed, accuracy = said(findings, runs)
    assert speed == (
        "Virtual against paced: images/s agree within 10 % in 2 of 2 configurations (furthest: "
        "asynchronous servers, 2 workers: ratio 1.10, n = 2), mean staleness in 2 of 2 "
        "configurations (furthest: asynchronous servers, 2 workers: ratio 0.95, n = 2)."
    )
    assert "lies within ±1.5 points in 2 of 2 configurations (all-reduce, 1 worker: +0.00" in (
        accuracy
    )


def test_what_is_outside_is_named_worst_first(findings):
    runs = twins(OTHER, 2, 1.2, (0.0, 0.5)) + twins(OTHER, 4, 0.5, (2.0, 2.1))
    speed, _ = said(findings, runs)
    assert (
        "images/s agree within 10 % in 0 of 2 configurations (furthest: asynchronous servers, "
        "4 workers: ratio 0.50, n = 2; asynchronous servers, 2 workers: ratio 1.20, n = 2)"
    ) in speed
    assert (
        "mean staleness in 1 of 2 configurations (furthest: asynchronous servers, 2 workers: "
        "+0.50 updates, n = 2)"
    ) in speed


def test_accuracy_is_judged_at_the_most_workers(findings):
    """At 4 workers -0.1 and +0.1 points: 12.7062 * 0.1 to either side; at 2 far apart."""
    runs = twins(OTHER, 2, points=(-5, 5)) + twins(OTHER, 4, points=(-0.1, 0.1))
    _, accuracy = said(findings, runs)
    assert accuracy == (
        "Test top-1 at the most workers, virtual minus paced: the 95 % interval lies within "
        "±1.5 points in 1 of 1 configuration (asynchronous servers, 4 workers: -1.27 to +1.27, "
        "n = 2)."
    )


@pytest.mark.parametrize(
    ("points", "seeds", "text"),
    [
        ((0, 1), (0, 1), "in 0 of 1 configuration, not for asynchronous servers, 4 workers: -5"),
        ((0, 1), (0,), "in 0 of 0 configurations; 1 configuration with fewer than two seeds in"),
    ],
)
def test_wide_or_unknown_intervals_do_not_count(findings, points, seeds, text):
    _, accuracy = said(findings, twins(OTHER, 4, points=points, seeds=seeds))
    assert text in accuracy


def test_a_twin_that_did_not_finish_is_counted(findings):
    runs = twins(OTHER, 2) + [fail(run, "diverged", "NaN") for run in twins(OTHER, 4)]
    speed, _ = said(findings, runs)
    assert "in 1 of 1 configuration " in speed
    assert speed.endswith("; 1 configuration without a finished pair.")


def test_without_a_twin_that_is_said(findings):
    runs = twins(OTHER, 2)[:1] + twins(OTHER, 4)[1:2]
    assert said(findings, runs) == [
        "No virtual point has a twin of equal settings on the wall clock."
    ]


def test_two_clocks_have_a_section(findings):
    runs = twins(OTHER, 2, 1.1, points=(0, 1)) + twins("sync_allreduce", 1, stale=(0.0, 0.0))
    table = page_tables(findings(runs, axes=AXES))[0]
    assert table.name == "Virtual against paced"
    assert len(table.says) == 2
    one, _ = (dict(zip(table.columns, row, strict=True)) for row in table.rows)
    assert (one["against"], one["kind"], one["workers"]) == ("paced", "virtual", "2")
    assert one["images/s, ratio"] == "1.10 (1.10 to 1.10), n = 2"
    assert one["top-1 on test, points"] == "+0.50 (-5.85 to +6.85), n = 2"
    assert [row[4] for row in table.rows] == [
        "1.00 (1.00 to 1.00), n = 2",
        "+0.00 (+0.00 to +0.00), n = 2",
    ]


@pytest.mark.parametrize("kept", [0, 1])
def test_one_clock_has_no_section(findings, kept):
    tables = page_tables(findings(twins(OTHER, 2)[kept::2], axes=AXES))
    assert tables[0].name == "Summary"


def test_a_cluster_that_the_kind_tells_makes_no_panels(findings):
    assert findings(twins(OTHER, 2), axes=AXES).varying == []
    both = [run | {"cluster": f"c{n % 4}"} for n, run in enumerate(twins(OTHER, 2))]
    assert findings(both, axes=AXES).varying == ["cluster"]
