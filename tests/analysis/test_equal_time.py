import math

import pytest

from paceline.analysis.tables import read_tables
from tests.made_reports import concluded, fail, make_run, write_points, write_reports

OTHER = "async_parameter_server"
# scheme: (seconds, updates) at the end, and four evaluations evenly before
ENDS = {"sync_allreduce": (8.0, 40), OTHER: (6.0, 80)}


def run(scheme, seed=0, **changes):
    seconds, updates = ENDS[scheme]
    return make_run(scheme, 2, seed=seed, seconds=seconds, updates=updates, top1=0.8) | changes


def budgets(folder, runs, **about):
    """Rows by scheme; each curve has the accuracies 0.2, 0.4, 0.6, 0.8."""
    write_reports(folder, runs, **about)
    curves = [
        {
            "key": each["key"],
            "samples": 1000 * n,
            "updates": each["updates"] * n // 4,
            "seconds": each["seconds"] * n / 4,
            "top1": n / 5,
        }
        for each in runs
        if each["seconds"]
        for n in (1, 2, 3, 4)
    ]
    write_points(folder, {"curve": curves})
    return concluded(read_tables(folder)).groupby("scheme").first().to_dict("index")


def test_accuracy_when_the_fastest_had_finished(tmp_path):
    """After 6 s sync_allreduce has done 3 of 4 parts; after 40 updates the other 2 of 4."""
    rows = budgets(tmp_path / "made", [run("sync_allreduce"), run(OTHER)])
    assert [rows[s]["common_seconds"] for s in ENDS] == [6.0, 6.0]
    assert [rows[s]["top1_equal_time_mean"] for s in ENDS] == [0.6, 0.8]
    assert [rows[s]["common_updates"] for s in ENDS] == [40, 40]
    assert [rows[s]["top1_equal_updates_mean"] for s in ENDS] == [0.8, 0.4]
    assert [rows[s]["top1_equal_samples_mean"] for s in ENDS] == [0.8, 0.8]


def test_rates_share_a_time_and_other_axes_do_not(tmp_path):
    axes = ["scheme", "workers", "training.rate", "cluster.server_seconds", "seed"]
    tuned = {"training.rate": "tuned", "cluster.server_seconds": 0}
    ruled = {"training.rate": "by_rule", "cluster.server_seconds": 0}
    slow = {"training.rate": "by_rule", "cluster.server_seconds": 1}
    runs = [run("sync_allreduce", **tuned), run(OTHER, **ruled), run("sync_allreduce", 1, **slow)]
    runs[2] |= {"scheme": "sync_again"}
    rows = budgets(tmp_path / "made", runs, axes=axes)
    assert rows["sync_allreduce"]["common_seconds"] == 6.0
    assert rows["sync_again"]["common_seconds"] == 8.0


def test_a_run_not_evaluated_by_then_is_left_out(tmp_path):
    """The other's first evaluation is after 10 s."""
    rows = budgets(tmp_path / "made", [run("sync_allreduce"), run(OTHER, seconds=40.0)])
    assert math.isnan(rows[OTHER]["top1_equal_time_mean"])
    assert rows[OTHER]["top1_equal_time_n"] == 0


def test_what_diverged_sets_no_time_and_is_counted(tmp_path):
    runs = [run("sync_allreduce"), fail(run(OTHER), "diverged", "NaN"), run("sync_allreduce", 1)]
    rows = budgets(tmp_path / "made", runs)
    assert rows["sync_allreduce"]["common_seconds"] == 8.0
    assert rows["sync_allreduce"]["top1_equal_time_n"] == 2
    assert rows[OTHER]["top1_equal_time_n"] == 0


def test_the_end_of_a_run_counts_though_its_last_snapshot_came_later(tmp_path):
    folder = tmp_path / "made"
    write_reports(folder, [make_run(seconds=8.0)])
    end = {"key": make_run()["key"], "samples": 1000, "updates": 3000, "seconds": 8.001}
    write_points(folder, {"curve": [end | {"top1": 0.7}]})
    assert concluded(read_tables(folder))["top1_equal_time_mean"][0] == pytest.approx(0.7)


def test_settings_of_a_scheme_do_not_give_it_a_time_of_its_own(tmp_path):
    others = [run(OTHER, seed) | {"scheme.servers": seed + 1} for seed in (0, 1)]
    runs = [run("sync_allreduce") | {"scheme.servers": None}, *others]
    axes = ["scheme", "workers", "scheme.servers", "seed"]
    rows = budgets(tmp_path / "made", runs, axes=axes)
    assert rows["sync_allreduce"]["common_seconds"] == 6.0
