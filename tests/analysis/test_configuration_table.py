"""Configurations: means over seeds, against one worker, the reference and the first of all.

A scheme with another optimizer is compared like another scheme, and never merged.
"""

import math

import numpy as np
import pytest

from paceline.analysis.comparison import against_first
from paceline.analysis.decision import decision
from paceline.analysis.tables import read_tables
from paceline.record.rows import bits_of, text_of
from paceline.report.findings import read_findings, situations
from tests.made_decisions import AXES, arm, write_decided
from tests.made_reports import concluded, fail, make_run

OTHER = "async_parameter_server"


def test_schemes_are_compared_seed_by_seed(made):
    runs = [
        make_run(seed=0, images_per_second=100.0, test_top1=0.8),
        make_run(seed=1, images_per_second=200.0, test_top1=0.9),
        make_run(OTHER, seed=0, images_per_second=150.0, test_top1=0.75),
        make_run(OTHER, seed=1, images_per_second=260.0, test_top1=0.87),
    ]
    (row,) = concluded(made(runs), "reference").to_dict("records")
    assert (row["scheme"], row["reference"]) == (OTHER, "sync_allreduce")
    assert row["reference_speedup_mean"] == pytest.approx(math.sqrt(1.5 * 1.3))
    assert row["reference_speedup_high"] == pytest.approx(
        math.sqrt(1.5 * 1.3) * (1.5 / 1.3) ** (12.7062047 / 2)
    )
    assert row["reference_top1_difference_mean"] == pytest.approx(-0.04)
    assert row["reference_top1_difference_low"] == pytest.approx(-0.04 - 12.7062047 * 0.01)


def test_kinds_and_settings_are_not_compared_across(made):
    runs = [make_run(), make_run(OTHER, kind="virtual"), make_run(OTHER, batch_size=128)]
    assert list(concluded(made(runs), "reference")["reference_speedup_n"]) == [0, 0]


def test_one_scheme_has_nothing_to_compare_with(made):
    assert concluded(made([make_run()]), "reference").empty


def test_settings_of_one_scheme_alone_keep_it_comparable(made):
    """Another scheme has no such setting, whether the scheme takes one or two values of it."""
    runs = [make_run(seed=seed) | {"scheme.servers": None} for seed in (0, 1)]
    runs += [make_run(OTHER, seed=s) | {"scheme.servers": n} for n in (1, 2) for s in (0, 1)]
    axes = ["scheme", "workers", "scheme.servers", "seed"]
    for number in (1, 2):
        rows = concluded(made(runs[: 2 + 2 * number], axes=axes), "reference")
        assert list(rows["reference_speedup_n"]) == [2] * number


def test_a_reference_of_several_settings_is_compared_with_at_equal_ones(made):
    runs = [make_run(seed=s) | {"scheme.period": n} for n in (1, 2) for s in (0, 1)]
    runs += [make_run(OTHER, seed=s) | {"scheme.period": n} for n in (2, 4) for s in (0, 1)]
    axes = ["scheme", "workers", "scheme.period", "seed"]
    rows = concluded(made(runs, axes=axes), "reference")
    assert list(rows["reference_speedup_n"]) == [2, 0]


def test_each_configuration_is_compared_with_the_first_of_its_seeds(made):
    sizes = {32: (0, 1), 64: (0, 1), 128: (2, 3), 256: (2, 3)}
    top1 = {32: 0.8, 64: 0.7, 128: 0.6, 256: 0.65}
    runs = [
        make_run(batch_size=size, seed=seed, test_top1=top1[size] + seed / 100)
        for size, seeds in sizes.items()
        for seed in seeds
    ]
    found = against_first(made(runs))
    assert list(found["first_mean"].round(9).fillna(0)) == [0, -0.1, 0, 0.05]
    assert list(found["first_n"]) == [0, 2, 0, 2]


def test_data_sets_are_not_compared_with_each_other(made):
    runs = [
        make_run(batch_size=size, seed=seed, test_top1=top1) | {"data": data}
        for data, size, top1 in (("a", 32, 0.9), ("b", 32, 0.5), ("b", 64, 0.6))
        for seed in (0, 1)
    ]
    assert list(against_first(made(runs))["first_mean"].round(9).fillna(0)) == [0, 0, 0.1]


@pytest.mark.parametrize(("last", "n"), [(0.85, 2), (0.7, 0)])
def test_times_to_a_target_of_the_study_are_compared_if_all_runs_reach_it(made, last, n):
    runs = [
        make_run(batch_size=size, seed=seed, top1=0.85, seconds=float(size))
        for size in (32, 64, 128)
        for seed in (0, 1)
    ]
    runs[-1]["top1"] = last
    found = against_first(made(runs, target={"metric": "top1", "value": 0.8}))
    assert list(found["first_mean"].round(9).fillna(0)) == [0, 2, 4 if n else 0]
    assert list(found["first_n"]) == [0, 2, n]


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
    row = two_workers(concluded(made([*rates(1, 100.0, 200.0), *rates(2, 150.0, 600.0)])))
    mean = math.sqrt(1.5 * 3)
    assert (row["speedup_mean"], row["speedup_n"]) == (pytest.approx(mean), 2)
    assert row["speedup_high"] == pytest.approx(mean * 2 ** (12.7062047 / 2))
    assert row["efficiency_mean"] == pytest.approx(mean / 2)
    assert row["baseline"] == "sync_allreduce batch_size=32"


@pytest.mark.parametrize(
    ("other", "baseline"),
    [
        ([], ""),
        (rates(1, 100.0, kind="virtual"), ""),
        (rates(1, 100.0, data="other"), ""),
        ([make_run(seed=7)], "sync_allreduce batch_size=32"),  # with no seed in common
    ],
)
def test_without_one_worker_of_the_same_kind_and_data_there_is_no_speed_up(made, other, baseline):
    row = two_workers(concluded(made([*rates(2, 150.0), *other])))
    assert (row["baseline"], row["speedup_n"]) == (baseline, 0)
    assert math.isnan(row["speedup_mean"])


def test_one_worker_has_the_same_settings_as_far_as_there_is_one(made):
    """The batch of 128 was run with one worker; the slow one of its cluster was not."""
    name = "cluster.slow_workers"
    ones = [*rates(1, 10.0, 20.0), *rates(1, 30.0, 60.0, batch_size=128)]
    own = rates(2, 45.0, 90.0, batch_size=128, **{name: 1})
    tables = made([run | {name: run.get(name, 0)} for run in [*ones, *own]], axes=[name, "workers"])
    row = two_workers(concluded(tables))
    assert row["speedup_mean"] == pytest.approx(1.5)
    assert row["baseline"] == "sync_allreduce batch_size=128 cluster.slow_workers=0"


def test_a_longer_run_is_slower_by_so_much(made):
    """Twice the epochs at three times the images/s: 1.5 times as fast; 1.5 of 2 in efficiency."""
    epochs = "training.epochs"
    runs = [*rates(1, 10.0, 20.0, **{epochs: 5}), *rates(2, 30.0, 60.0, **{epochs: 10})]
    row = two_workers(concluded(made(runs, axes=["scheme", "workers", epochs])))
    assert row["speedup_mean"] == pytest.approx(1.5)
    assert row["efficiency_mean"] == pytest.approx(1.5)


@pytest.mark.parametrize("turned", [False, True])
def test_one_worker_has_the_nearest_budget(made, turned):
    """Of 1 and 16 epochs, 2 are nearer to 1: twice as long, at thrice the images/s."""
    epochs = "training.epochs"
    ones = [rates(1, 10.0, 20.0, **{epochs: n, "key": f"one{n}"}) for n in (1, 16)]
    ones = [run | {"key": f"{run['key']}{run['seed']}"} for own in ones for run in own]
    runs = [*(ones[::-1] if turned else ones), *rates(2, 30.0, 60.0, **{epochs: 2})]
    row = two_workers(concluded(made(runs, axes=["scheme", "workers", epochs])))
    assert row["speedup_mean"] == pytest.approx(1.5)


def test_one_worker_is_of_the_reference_else_of_the_fastest_scheme(made):
    slow, fast = rates(1, 10.0, 20.0), rates(1, 20.0, 40.0)
    both = [run | {"scheme": f"scheme_{k}"} for k, runs in ((1, slow), (2, fast)) for run in runs]
    two = [run | {"scheme": "scheme_1"} for run in rates(2, 30.0, 60.0)]
    row = two_workers(concluded(made([*both, *two])))
    assert row["speedup_mean"] == pytest.approx(3)
    assert row["baseline"] == "scheme_1 batch_size=32"
    others = [run | {"scheme": "scheme_3"} for run in two]
    row = two_workers(concluded(made([*others, *both])))
    assert row["speedup_mean"] == pytest.approx(1.5)
    assert row["baseline"] == "scheme_2 batch_size=32"


def test_workers_that_all_diverged_have_no_speed_up(made):
    lost = [fail(run, "diverged", "NaN") for run in rates(2, 100.0, 200.0)]
    row = two_workers(concluded(made([*rates(1, 100.0, 200.0), *lost])))
    assert row["speedup_n"] == 0


def test_strong_scaling_is_against_one_worker_with_all_the_images(made):
    """Two workers share the 64 images that one takes in a step; another size has no baseline."""
    alone = rates(1, 100.0, batch_size=64, global_batch_size=64)
    shared = rates(2, 180.0, batch_size=32, global_batch_size=64)
    other = rates(4, 300.0, batch_size=32, global_batch_size=128)
    axes = ["scheme", "workers", "global_batch_size", "seed"]
    table = concluded(made([*alone, *shared, *other], axes=axes))
    row = two_workers(table)
    assert (row["speedup_mean"], row["efficiency_mean"]) == (1.8, 0.9)
    assert table["global_batch_size"].tolist() == [64, 64, 128]
    assert list(table["speedup_n"]) == [1, 1, 1]


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
    rows = concluded(tables).to_dict("records")
    assert [row["speedup_mean"] for row in rows] == [1, 0.6, 0.3, 1.2]
    assert [row["efficiency_mean"] for row in rows] == [1, 0.3, 0.15, 0.3]
    assert [row["baseline"] == "itself" for row in rows] == [True, False, False, False]


def test_a_scheme_with_settings_of_its_own_counts_against_one_worker_of_another(made):
    runs = [run | {"scheme": "gossip", "scheme.servers": None} for run in rates(1, 10.0, 20.0)]
    runs += [run | {"scheme.servers": n} for n in (1, 2) for run in rates(2, 30.0, 60.0)]
    axes = ["scheme", "workers", "scheme.servers", "seed"]
    rows = concluded(made(runs, axes=axes)).query("workers == 2")
    assert list(rows["speedup_mean"]) == pytest.approx([3, 3])


@pytest.mark.parametrize("count", [1, 8, 9, 10_000])
def test_bits_survive_as_text(count):
    bits = np.random.default_rng(count).random(count) < 0.9
    assert np.array_equal(bits_of(text_of(np.packbits(bits).tobytes()), count), bits)


def test_a_row_holds_mean_interval_and_n_over_seeds(made):
    """Of logarithms, of which the standard error is ln 2 / sqrt(3)."""
    speeds = enumerate((4000.0, 8000.0, 16000.0))
    table = concluded(made([make_run(seed=s, images_per_second=speed) for s, speed in speeds]))
    (row,) = table.to_dict("records")
    assert (row["n"], row["n_finished"], row["images_per_second_n"]) == (3, 3, 3)
    assert row["images_per_second_mean"] == pytest.approx(8000)
    factor = 2 ** (4.30265273 / math.sqrt(3))
    assert row["images_per_second_low"] == pytest.approx(8000 / factor)
    assert row["images_per_second_high"] == pytest.approx(8000 * factor)


def test_no_interval_leaves_its_range(made):
    """Two seeds of which each interval by Student's t alone would be wider than the range."""
    low = {"seconds": 1.0, "staleness_mean": 0.0, "top1": 0.05, "test_top1": 0.6}
    high = {"seconds": 90.0, "staleness_mean": 2.0, "top1": 0.9, "test_top1": 1.0}
    runs = [make_run(seed=s, **values) for s, values in enumerate((low, high))]
    (row,) = concluded(made(runs)).to_dict("records")
    for name in ("top1", "test_top1"):
        assert 0 <= row[f"{name}_low"] < low[name]
        assert high[name] <= row[f"{name}_high"] <= 1
    assert 0 < row["seconds_low"] < 1 < 90 < row["seconds_high"]
    assert (row["staleness_mean_low"], row["staleness_mean_mean"]) == (0, 1)


def test_diverged_and_failed_points_are_counted_and_enter_no_mean(made):
    runs = [
        make_run(seed=0, top1=0.8),
        fail(make_run(seed=1), "diverged", "at chance") | {"top1": 0.1},
        fail(make_run(seed=2)),
    ]
    (row,) = concluded(made(runs)).to_dict("records")
    assert [row[f"n_{status}"] for status in ("finished", "diverged", "failed")] == [1, 1, 1]
    assert (row["n"], row["top1_mean"], row["top1_n"]) == (3, 0.8, 1)
    assert math.isnan(row["top1_low"])


def test_kinds_and_every_axis_but_the_seed_tell_configurations_apart(made):
    """A value may be missing in some points."""
    kinds = concluded(made([make_run(top1=0.8), make_run(seed=1, kind="virtual", top1=0.6)]))
    assert list(kinds["kind"]) == ["measured", "virtual"]
    assert list(kinds["top1_mean"]) == [0.8, 0.6]
    for name, values in (("training.lr", [0.05, 0.1]), ("training.clip", [None, 1.0])):
        runs = [make_run(seed=seed) | {name: value} for value in values for seed in (0, 1)]
        table = concluded(made(runs, axes=[name, "seed"]))
        assert list(table[name].replace(math.nan, None)) == values
        assert list(table["n"]) == [2, 2]


def test_real_seconds_are_those_of_runs_that_have_them(made):
    runs = [make_run(seed=0), make_run(seed=1, real_seconds=4.0)]
    (row,) = concluded(made(runs)).to_dict("records")
    assert (row["real_seconds_mean"], row["real_seconds_n"]) == (4.0, 1)
    assert "real_images_per_second_mean" not in row


OPTIMIZER = "model/optimizer"


def of(optimizer, runs):
    return [run | {OPTIMIZER: optimizer, "key": f"{run['key']}{optimizer}"} for run in runs]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    runs = of("sgd", arm("sync_allreduce", 801, 0.9, workers=1))
    for workers in (4, 8):
        runs += of("sgd", arm("sync_allreduce", 301, 0.89, workers=workers))
        runs += of("sgd", arm("gossip", 201, 0.88, workers=workers))
        runs += of("lars", arm("sync_allreduce", 251, 0.895, workers=workers))
    return write_decided(tmp_path_factory.mktemp("made") / "made", runs, axes=[*AXES, OPTIMIZER])


@pytest.fixture(scope="module")
def tables(folder):
    return read_tables(folder)


def test_they_share_situations_and_one_worker(folder, tables):
    assert [each.words for each in situations(read_findings(folder))] == [
        "1 worker",
        "4 workers",
        "8 workers",
    ]
    rows = decision(tables).query("workers == 4").set_index(["scheme", OPTIMIZER])
    assert len(rows) == 3
    points = 100 * rows["one_worker_top1_difference_mean"]
    assert points["sync_allreduce", "sgd"] == pytest.approx(-1)
    assert points["sync_allreduce", "lars"] == pytest.approx(-0.5)


def test_the_first_optimizer_is_that_of_the_reference(tables):
    rows = decision(tables).query("workers == 4").set_index(["scheme", OPTIMIZER])
    points = 100 * rows["reference_top1_difference_mean"]
    assert points["sync_allreduce", "lars"] == pytest.approx(0.5)
    assert points["gossip", "sgd"] == pytest.approx(-1)
    assert points.isna()["sync_allreduce", "sgd"]
    compared = concluded(tables, "reference").query("workers == 4")
    assert [*zip(compared["scheme"], compared[OPTIMIZER], strict=True)] == [
        ("gossip", "sgd"),
        ("sync_allreduce", "lars"),
    ]
    assert list(100 * compared["reference_top1_difference_mean"]) == pytest.approx([-1, 0.5])


def test_their_speed_up_names_the_optimizer_of_one_worker(tables):
    rows = concluded(tables).query("workers == 4").set_index(["scheme", OPTIMIZER])["baseline"]
    own = "sync_allreduce batch_size=32 model/optimizer=sgd"
    assert rows["sync_allreduce", "sgd"] == rows["sync_allreduce", "lars"] == own
