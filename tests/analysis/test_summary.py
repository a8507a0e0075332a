import math

import pytest

from tests.made_reports import concluded, fail, make_run


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


def test_kinds_are_never_averaged_together(made):
    runs = [make_run(top1=0.8), make_run(seed=1, kind="virtual", top1=0.6)]
    table = concluded(made(runs))
    assert list(table["kind"]) == ["measured", "virtual"]
    assert list(table["top1_mean"]) == [0.8, 0.6]


def test_every_axis_but_the_seed_tells_configurations_apart(made):
    runs = [make_run(seed=s) | {"training.lr": lr} for lr in (0.05, 0.1) for s in (0, 1)]
    table = concluded(made(runs, axes=["training.lr", "seed"]))
    assert list(table["training.lr"]) == [0.05, 0.1]
    assert list(table["n"]) == [2, 2]


def test_an_axis_may_be_empty_in_some_points(made):
    runs = [make_run() | {"training.clip": value} for value in (None, 1.0)]
    assert list(concluded(made(runs, axes=["training.clip"]))["n"]) == [1, 1]


def test_real_seconds_are_those_of_runs_that_have_them(made):
    runs = [make_run(seed=0), make_run(seed=1, real_seconds=4.0)]
    (row,) = concluded(made(runs)).to_dict("records")
    assert (row["real_seconds_mean"], row["real_seconds_n"]) == (4.0, 1)
    assert "real_images_per_second_mean" not in row
