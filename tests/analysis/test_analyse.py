import csv
import json

import pytest

from paceline.analysis.analyse import CONCLUSIONS, FOLDER, analyse
from paceline.analysis.tables import read_tables
from paceline.errors import SettingError
from paceline.record.archive import ARCHIVE
from tests.made_decisions import AXES, arm, write_decided
from tests.made_reports import fail, make_run, tie, write_points, write_reports

OUTPUTS = [*(f"{FOLDER}/{each.name}.csv" for each in CONCLUSIONS), "metrics.json"]


def test_same_tables_in_same_bytes_out(tmp_path):
    folders = [write_reports(tmp_path / name / "made") for name in ("first", "second")]
    for folder in folders:
        analyse(folder)
    first, second = ([(folder / name).read_bytes() for name in OUTPUTS] for folder in folders)
    assert first == second


def test_metrics_are_a_dozen_numbers(tmp_path):
    runs = [
        make_run(scheme, workers, 32, seed)
        for scheme in ("sync_allreduce", "async_parameter_server")
        for workers in (1, 2)
        for seed in (0, 1, 2)
    ]
    folder = write_reports(tmp_path / "made", [*runs, fail(make_run(seed=3))])
    analyse(folder)
    found = json.loads((folder / "metrics.json").read_text())
    tables = {name: read_table(folder, name) for name in ("decision", "configurations")}
    best = [row for row in tables["decision"] if row["tier"] == "best"]
    fastest = max(best, key=lambda row: float(row["speedup_mean"]))
    assert {name: found[name] for name in ("n", "n_finished", "n_failed", "n_missing")} == {
        "n": 13,
        "n_finished": 12,
        "n_failed": 1,
        "n_missing": 0,
    }
    two = [row for row in tables["decision"] if row["workers"] == "2"]
    assert sorted(row["tier"] for row in two) == ["best", "tied"]
    assert (found["n_situations"], found["n_decided"]) == (1, 0)
    assert found["best_speedup"] == pytest.approx(float(fastest["speedup_mean"]), rel=1e-5)
    assert found["best_speedup_workers"] == int(fastest["workers"])
    scores = [float(row["test_top1_mean"]) for row in tables["configurations"]]
    assert found["best_test_top1"] == pytest.approx(max(scores), rel=1e-5)
    assert len(found) <= 12
    assert all(isinstance(value, int | float) for value in found.values())


def read_table(folder, name):
    with (folder / FOLDER / f"{name}.csv").open() as file:
        return list(csv.DictReader(file))


def test_a_study_in_which_nothing_finished_is_counted(tmp_path):
    folder = write_reports(tmp_path / "made", [fail(make_run(seed=seed)) for seed in (0, 1)])
    analyse(folder)
    assert json.loads((folder / "metrics.json").read_text())["n_failed"] == 2


@pytest.mark.parametrize("name", ["runs.csv", ARCHIVE, "tuning.csv", "study.json"])
def test_a_missing_table_names_the_command_that_makes_it(tmp_path, name):
    folder = write_reports(tmp_path / "made")
    (folder / name).unlink()
    with pytest.raises(SettingError, match=rf"study: there is no .*{name}; .*paceline sweep made"):
        analyse(folder)


def test_tables_of_other_columns_are_refused(tmp_path):
    folder = write_reports(tmp_path / "made")
    (folder / "runs.csv").write_text("key,status\nabc,finished\n")
    tie(folder)
    with pytest.raises(SettingError, match="no column reason; first: paceline sweep made"):
        analyse(folder)


def test_tables_without_a_point_are_refused(tmp_path):
    folder = write_reports(tmp_path / "made")
    header = (folder / "runs.csv").read_text().splitlines()[0]
    (folder / "runs.csv").write_text(header + "\n")
    tie(folder)
    with pytest.raises(SettingError, match="no point; first: paceline sweep made"):
        analyse(folder)


def test_what_a_record_lacks_is_empty(tmp_path):
    """A table of one of two points, without one of its columns."""
    runs = [make_run(seed=seed) for seed in (0, 1)]
    folder = write_reports(tmp_path / "made", runs)
    row = {"key": runs[1]["key"], "samples": 32, "updates": 1, "seconds": 2.5, "top1": 0.5}
    write_points(folder, {"curve": [row]})
    curves = read_tables(folder).curves
    assert list(curves["key"]) == [runs[1]["key"]]
    assert list(curves["seconds"]) == [2.5]
    assert curves["real_seconds"].isna().all()


def test_tables_without_a_row_have_a_header(tmp_path):
    folder = write_reports(tmp_path / "made", [fail(make_run())])
    analyse(folder)
    assert (
        folder / FOLDER / "clocks.csv"
    ).read_text() == "kind,scheme,batch_size,workers,against\n"
    assert (
        (folder / FOLDER / "configurations.csv")
        .read_text()
        .startswith("kind,data,scheme,batch_size,workers,n,")
    )


def test_metrics_count_situations_of_split_workers_by_their_processes(tmp_path):
    shards = "model.shards"
    runs = [run | {shards: 1} for run in arm("sync_allreduce", 801, 0.9, workers=1)]
    runs += [run | {shards: 1} for run in arm("sync_allreduce", 401, 0.9, workers=2)]
    divided = arm("sync_allreduce", 201, 0.9, workers=1)
    runs += [run | {shards: 2, "key": f"{run['key']}d"} for run in divided]
    folder = write_decided(tmp_path / "made", runs, axes=[*AXES, shards])
    analyse(folder)
    numbers = json.loads((folder / "metrics.json").read_text())
    assert (numbers["n_situations"], numbers["n_decided"]) == (1, 1)


@pytest.mark.parametrize(
    ("updates", "decided", "speedup"), [((401, 801), 1, 2), ((801, 820), 0, 1), ((401, 401), 0, 2)]
)
def test_metrics_count_what_is_shown(tmp_path, updates, decided, speedup):
    one = arm("sync_allreduce", 801, 0.9, workers=1)
    first, second = updates
    runs = [*arm("sync_allreduce", first, 0.9), *arm("gossip", second, 0.9)]
    folder = write_decided(tmp_path / "made", [*one, *runs])
    analyse(folder)
    numbers = json.loads((folder / "metrics.json").read_text())
    assert (numbers["n_situations"], numbers["n_decided"]) == (1, decided)
    assert numbers["best_speedup"] == pytest.approx(speedup, rel=0.05)
    assert numbers["best_speedup_workers"] == (4 if speedup > 1 else 1)
