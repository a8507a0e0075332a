import math

import pytest

from tests.made_reports import concluded, fail, make_run


def rates(workers, *speeds, **changes):
    return [
        make_run(workers=workers, seed=seed, images_per_second=speed, **changes)
        for seed, speed in enumerate(speeds)
    ]


def two_workers(table):
    (row,) = table[table["workers"] == 2].to_dict("records")
    return row


def test_speedup_is_paired_by_seed(made):
    """150/100 and 600/200: the geometric mean; the ratio of the means would be 2.5."""
    row = two_workers(
        concluded(made([*rates(1, 100.0, 200.0), *rates(2, 150.0, 600.0)]), "baseline")
    )
    mean = math.sqrt(1.5 * 3)
    assert (row["speedup_mean"], row["speedup_n"]) == (pytest.approx(mean), 2)
    assert row["speedup_high"] == pytest.approx(mean * 2 ** (12.7062047 / 2))
    assert row["efficiency_mean"] == pytest.approx(mean / 2)
    assert row["baseline"] == "1 worker, same settings otherwise, 2 seeds in common"


def test_a_seed_that_one_worker_did_not_finish_is_left_out(made):
    runs = [*rates(1, 100.0), fail(make_run(seed=1)), *rates(2, 150.0, 600.0)]
    row = two_workers(concluded(made(runs), "baseline"))
    assert (row["speedup_mean"], row["speedup_n"]) == (1.5, 1)
    assert math.isnan(row["speedup_low"])


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ([], "none: no finished point with one worker"),
        (rates(1, 100.0, batch_size=128), "none: no finished point with one worker"),
        (rates(1, 100.0, kind="virtual"), "none: no finished point with one worker"),
        ([make_run(seed=7)], "none: no seed in common with one worker"),
    ],
)
def test_a_missing_baseline_is_said_and_never_replaced(made, other, why):
    row = two_workers(concluded(made([*rates(2, 150.0), *other]), "baseline"))
    assert row["baseline"] == why
    assert row["speedup_n"] == 0
    assert math.isnan(row["speedup_mean"])


def test_a_scheme_without_one_worker_counts_against_the_fastest_that_has(made):
    slow, fast = rates(1, 10.0, 20.0), rates(1, 20.0, 40.0)
    both = [run | {"scheme": f"scheme_{k}"} for k, runs in ((1, slow), (2, fast)) for run in runs]
    row = two_workers(concluded(made([*both, *rates(2, 30.0, 60.0)]), "baseline"))
    assert (row["speedup_mean"], row["speedup_n"]) == (1.5, 2)
    assert row["baseline"] == "1 worker of scheme_2, same settings otherwise, 2 seeds in common"


def test_one_worker_is_its_own_baseline(made):
    (row,) = concluded(made(rates(1, 100.0, 200.0)), "baseline").to_dict("records")
    assert (row["baseline"], row["speedup_mean"], row["speedup_n"]) == ("itself", 1.0, 2)


def test_workers_that_all_diverged_have_no_baseline(made):
    lost = [fail(run, "diverged", "NaN") for run in rates(2, 100.0, 200.0)]
    row = two_workers(concluded(made([*rates(1, 100.0, 200.0), *lost]), "baseline"))
    assert row["baseline"] == "none: no finished point"


def test_strong_scaling_is_against_one_worker_with_all_the_images(made):
    """Two workers share the 64 images that one takes in a step; another size has no baseline."""
    alone = rates(1, 100.0, batch_size=64, global_batch_size=64)
    shared = rates(2, 180.0, batch_size=32, global_batch_size=64)
    other = rates(4, 300.0, batch_size=32, global_batch_size=128)
    axes = ["scheme", "workers", "global_batch_size", "seed"]
    table = concluded(made([*alone, *shared, *other], axes=axes), "baseline")
    row = two_workers(table)
    assert (row["speedup_mean"], row["efficiency_mean"]) == (1.8, 0.9)
    assert table["global_batch_size"].tolist() == [64, 64, 128]
    assert table["baseline"].iloc[2].startswith("none")


def test_a_worker_of_two_processes_is_compared_with_one_process(made):
    """Not with itself, where its network is divided another way; efficiency is by processes."""
    ways = [(1, 1, "auto", 100.0), (1, 2, "auto", 60.0), (1, 2, "all", 30.0), (2, 2, "all", 120.0)]
    runs = [
        make_run(workers=workers, images_per_second=speed, **{"model.shards": s, "model.split": w})
        | {"key": f"{number}"}
        for number, (workers, s, w, speed) in enumerate(ways)
    ]
    axes = ["scheme", "workers", "model.shards", "model.split", "seed"]
    tables = made(runs, axes=axes)
    rows = concluded(tables, "baseline").to_dict("records")
    assert [row["speedup_mean"] for row in rows] == [1, 0.6, 0.3, 1.2]
    assert [row["efficiency_mean"] for row in rows] == [1, 0.3, 0.15, 0.3]
    assert [row["baseline"].split(",")[0] for row in rows] == ["itself", *["1 worker"] * 3]


def test_a_scheme_with_settings_of_its_own_counts_against_one_worker_of_another(made):
    runs = [run | {"scheme": "gossip", "scheme.servers": None} for run in rates(1, 10.0, 20.0)]
    runs += [run | {"scheme.servers": n} for n in (1, 2) for run in rates(2, 30.0, 60.0)]
    axes = ["scheme", "workers", "scheme.servers", "seed"]
    rows = concluded(made(runs, axes=axes), "baseline").query("workers == 2")
    assert list(rows["speedup_mean"]) == pytest.approx([3, 3])
