import math

import pandas as pd
import pytest

from paceline.analysis.tables import read_tables
from paceline.analysis.time_to_target import crossing, crossings, images_to_target, targets
from tests.made_reports import concluded, fail, make_curve, make_run, write_points, write_reports


def test_the_target_is_two_points_below_the_best_mean_of_one_worker(made):
    """Means 0.80 and 0.83; a better single seed and more workers do not set it."""
    small = [make_run(seed=s, top1=top1) for s, top1 in enumerate((0.7, 0.9))]
    large = [make_run(seed=s, batch_size=128, top1=0.83) for s in (0, 1)]
    table = targets(made([*small, *large, make_run(workers=2, top1=0.95)]))
    (row,) = table.to_dict("records")
    assert row["target"] == pytest.approx(0.81)
    assert row["set_by"] == "sync_allreduce batch_size=128 workers=1"


def test_each_kind_has_its_own_target(made):
    table = targets(made([make_run(top1=0.8), make_run(kind="virtual", top1=0.6, key="other")]))
    assert list(table["target"]) == pytest.approx([0.78, 0.58])


def test_the_target_and_those_held_to_it_are_of_equal_images(made):
    """The last evaluation, of 0.8, is on all images; the one before reads 0.795 on fewer."""
    runs = [make_run(top1=0.8), make_run(workers=2, top1=0.79)]
    fewer = {"measurement.curve_images": 2000}
    tables = made(runs, settings=fewer)
    assert tables.curves.groupby("key").size().tolist() == [7, 7]
    ends = [0.8 * (1 - 0.5 ** (1.2 * n)) / (1 - 0.5**9.6) for n in (7, 8)]
    assert ends[1] == pytest.approx(0.8)
    assert targets(tables)["target"].tolist() == pytest.approx([ends[0] - 0.02])
    assert targets(made(runs))["target"].tolist() == pytest.approx([ends[1] - 0.02])
    varying = [run | fewer for run in runs[:1]] + runs[1:]
    assert made(varying).curves.groupby("key").size().tolist() == [7, 8]


def test_a_single_evaluation_is_kept_on_whatever_images(tmp_path):
    runs = [make_run(top1=0.8), make_run(workers=2, top1=0.79)]
    fewer = {"measurement.curve_images": 2000}
    folder = write_reports(tmp_path / "made", runs, settings=fewer)
    ends = [make_curve(runs[0])[-1], *make_curve(runs[1])]
    write_points(folder, {"curve": ends})
    tables = read_tables(folder)
    assert tables.curves.groupby("key", sort=False).size().tolist() == [1, 7]
    assert targets(tables)["target"].tolist() == pytest.approx([0.78])
    write_points(folder, {"curve": []})  # where the run itself is all there is
    assert targets(read_tables(folder))["target"].tolist() == pytest.approx([0.78])


def test_where_no_setting_says_fewer_images_curves_are_whole(made):
    name = "measurement.curve_images"
    runs = [make_run() | {name: "null"}, make_run(workers=2) | {name: ""}]
    assert made(runs).curves.groupby("key").size().tolist() == [8, 8]
    for run in runs:
        del run["samples"]
    assert len(made(runs).curves) == 16


@pytest.mark.parametrize(
    ("ends", "lost", "reached", "censored"),
    [
        ((0.8, 0.8), (), 2, 0),
        ((0.8, 0.8, 0.5), (), 2, 1),
        ((0.8,), ("diverged", "failed"), 1, 1),  # which is censored, or counted apart
    ],
)
def test_runs_that_all_reach_the_target_have_a_mean(made, ends, lost, reached, censored):
    """Two workers, a seed for each final accuracy; the target is 0.78."""
    runs = [make_run(workers=2, seed=s, top1=top1, seconds=8.0) for s, top1 in enumerate(ends)]
    ended = [make_run(workers=2, seed=9 + s, top1=0.1) for s in range(len(lost))]
    runs += map(fail, ended, lost)
    table = concluded(made([make_run(top1=0.8), *runs]), "target")
    (row,) = table[table["workers"] == 2].to_dict("records")
    assert (row["n"], row["n_failed"]) == (len(runs), "failed" in lost)
    assert (row["target_n_reached"], row["target_n_censored"]) == (reached, censored)
    expected = math.nan if censored else 5.0
    assert row["target_seconds_mean"] == pytest.approx(expected, nan_ok=True)
    assert row["target_seconds_n"] == (0 if censored else reached)


def test_without_one_worker_there_is_no_target(made):
    assert concluded(made([make_run(workers=2)]), "target").empty


def test_a_value_of_the_study_is_the_target_even_without_one_worker(made):
    asked = {"metric": "top1", "value": 0.7}
    runs = [make_run(workers=2, seed=s, top1=top1) for s, top1 in enumerate((0.8, 0.6))]
    tables = made([*runs, make_run(kind="virtual", top1=0.6)], target=asked)
    assert list(targets(tables)["target"]) == [0.7, 0.7]
    assert list(targets(tables)["set_by"]) == ["the study", "the study"]
    row = concluded(tables, "target").iloc[0]
    assert (row["target"], row["target_n_reached"], row["target_n_censored"]) == (0.7, 1, 1)


@pytest.mark.parametrize(
    ("metric", "column", "ends", "asked", "target"),
    [
        ("top5", "top5", (0.9, 0.8), {"value": 0.85}, 0.85),
        ("top5", "top5", (0.9, 0.8), {"below_baseline": 0.05}, 0.85),
        ("loss", "validation_loss", (0.4, 0.6), {"value": 0.5}, 0.5),
        ("loss", "validation_loss", (0.4, 0.6), {"below_baseline": 0.1}, 0.5),
    ],
)
def test_a_target_of_another_metric(made, metric, column, ends, asked, target):
    """The better of two settings sets the baseline; of a loss less is better."""
    runs = [
        make_run(batch_size=size, **{column: end, "samples": 300})
        for size, end in zip((32, 64), ends, strict=True)
    ]
    tables = made(runs, target={"metric": metric, **asked})
    worst = 0.1 if metric == "top5" else 0.9
    (first, second), bad = runs, None
    rows = [
        {"key": run["key"], "samples": 100 * n, "seconds": 10.0 * n, "top1": 0.5, column: value}
        for run in (first, second)
        for n, value in enumerate((worst, bad, run[column]), 1)
    ]
    write_points(tables.archive.parent, {"curve": rows})
    tables = read_tables(tables.archive.parent)
    found = concluded(tables, "target")
    assert list(found["target"]) == pytest.approx([target] * 2)
    assert list(found["target_n_reached"]) == [1, 0]
    assert found["target_seconds_mean"].iloc[0] == pytest.approx(30)
    assert crossings(tables) == {first["key"]: 30}


@pytest.mark.parametrize(
    ("values", "where"),
    [
        ([0.5, 0.8, 0.9, 0.9], 2),
        ([0.9, 0.5, 0.9, 0.9, 0.9], 3),  # one evaluation alone may be luck
        ([0.5, 0.9, 0.9], 2),  # fewer at the end
        ([0.9, 0.9, 0.5], None),
        ([], None),
    ],
)
def test_a_target_is_reached_at_the_first_of_three_evaluations(values, where):
    assert crossing(range(1, len(values) + 1), values, 0.8) == where


@pytest.mark.parametrize("factor", [1, 1.7, 7.5])
@pytest.mark.parametrize("budgets", [(1, 2, 4, 8, 16), (1, 16), (16, 3, 1)])
def test_images_to_a_target_are_those_at_which_accuracy_is_planted(factor, budgets):
    """Seed 0 needs `factor` times 1,000 images; 1 misses, and of 2 the smallest is enough."""
    share = [(0, factor), (1, 20), (2, 0.9)]
    runs = pd.DataFrame(
        {"seed": seed, "samples": 1000 * budget, "status": "finished"}
        | {"top1": 0.8 + 0.05 * math.log(budget / needed)}
        for seed, needed in share
        for budget in budgets
    )
    found = images_to_target(runs, "top1", 0.8)
    assert found["seed"].tolist() == [0, 1, 2]
    assert found["images"].tolist() == pytest.approx([1000 * factor, math.inf, 1000])


def test_a_run_that_diverged_says_nothing_of_its_budget():
    ends = {"samples": [10, 2000, 4000, 8000], "top1": [math.nan, 0.8, 0.9, math.nan]}
    runs = pd.DataFrame({"seed": 0, "status": "finished"} | ends)
    runs.loc[runs["top1"].isna(), "status"] = "diverged"
    for target, needed in ((0.7, 2000), (0.85, 2000 * 2**0.5), (0.91, math.inf)):
        assert images_to_target(runs, "top1", target)["images"].tolist() == pytest.approx([needed])


def test_a_longer_budget_that_is_less_accurate_by_luck_needs_no_more_images():
    ends = [0.70, 0.82, 0.78, 0.90]
    samples = [1000, 2000, 4000, 8000]
    runs = pd.DataFrame({"seed": 0, "samples": samples, "status": "finished", "top1": ends})
    for target in (0.75, 0.80, 0.82):
        (needed,) = images_to_target(runs, "top1", target)["images"]
        assert needed == pytest.approx(1000 * 2 ** ((target - 0.70) / 0.12))
    (needed,) = images_to_target(runs, "top1", 0.86)["images"]
    assert needed == pytest.approx(4000 * 2 ** ((0.86 - 0.82) / 0.08))
