import pytest

from paceline.analysis.analyse import metrics
from paceline.analysis.configuration_table import configuration_table
from paceline.analysis.decision import decision
from paceline.analysis.tables import read_tables
from paceline.errors import SettingError
from paceline.report.findings import read_findings
from tests.made_decisions import AXES, arm, write_decided
from tests.made_reports import fail, make_run, write_points, write_reports


def numbers_of(folder):
    tables = read_tables(folder)
    return metrics(tables, configuration_table(tables), decision(tables))


def test_metrics_are_a_dozen_numbers(tmp_path):
    runs = [
        make_run(scheme, workers, 32, seed)
        for scheme in ("sync_allreduce", "async_parameter_server")
        for workers in (1, 2)
        for seed in (0, 1, 2)
    ]
    folder = write_reports(tmp_path / "made", [*runs, fail(make_run(seed=3))])
    found = numbers_of(folder)
    decided = decision(read_tables(folder))
    best = decided[decided["tier"] == "best"]
    fastest = best.loc[best["speedup_mean"].idxmax()]
    assert {name: found[name] for name in ("n", "n_finished", "n_failed", "n_missing")} == {
        "n": 13,
        "n_finished": 12,
        "n_failed": 1,
        "n_missing": 0,
    }
    assert sorted(decided.query("workers == 2")["tier"]) == ["best", "tied"]
    assert (found["n_situations"], found["n_decided"]) == (1, 0)
    assert found["best_speedup"] == pytest.approx(fastest["speedup_mean"], rel=1e-5)
    assert found["best_speedup_workers"] == fastest["workers"]
    scores = configuration_table(read_tables(folder))["test_top1_mean"]
    assert found["best_test_top1"] == pytest.approx(scores.max(), rel=1e-5)
    assert len(found) <= 12
    assert all(isinstance(value, int | float) for value in found.values())


def test_a_study_in_which_nothing_finished_is_counted(tmp_path):
    folder = write_reports(tmp_path / "made", [fail(make_run(seed=seed)) for seed in (0, 1)])
    assert numbers_of(folder)["n_failed"] == 2


@pytest.mark.parametrize("name", ["runs.csv", "tuning.csv", "study.json"])
def test_a_missing_table_names_the_command_that_makes_it(tmp_path, name):
    folder = write_reports(tmp_path / "made")
    (folder / name).unlink()
    with pytest.raises(SettingError, match=rf"study: there is no .*{name}; .*paceline sweep made"):
        read_tables(folder)


def test_tables_of_other_columns_are_refused(tmp_path):
    folder = write_reports(tmp_path / "made")
    (folder / "runs.csv").write_text("key,status\nabc,finished\n")
    with pytest.raises(SettingError, match="no column reason; first: paceline sweep made"):
        read_tables(folder)


def test_tables_without_a_point_are_refused(tmp_path):
    folder = write_reports(tmp_path / "made")
    header = (folder / "runs.csv").read_text().splitlines()[0]
    (folder / "runs.csv").write_text(header + "\n")
    with pytest.raises(SettingError, match="no point; first: paceline sweep made"):
        read_tables(folder)


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
    concluded = read_findings(folder).concluded
    assert concluded.csv("clocks") == "kind,scheme,batch_size,workers,against\n"
    assert concluded.csv("configurations").startswith("kind,data,scheme,batch_size,workers,n,")


def test_metrics_count_situations_of_split_workers_by_their_processes(tmp_path):
    shards = "model.shards"
    runs = [run | {shards: 1} for run in arm("sync_allreduce", 801, 0.9, workers=1)]
    runs += [run | {shards: 1} for run in arm("sync_allreduce", 401, 0.9, workers=2)]
    divided = arm("sync_allreduce", 201, 0.9, workers=1)
    runs += [run | {shards: 2, "key": f"{run['key']}d"} for run in divided]
    folder = write_decided(tmp_path / "made", runs, axes=[*AXES, shards])
    numbers = numbers_of(folder)
    assert (numbers["n_situations"], numbers["n_decided"]) == (1, 1)


@pytest.mark.parametrize(
    ("updates", "decided", "speedup"), [((401, 801), 1, 2), ((801, 820), 0, 1), ((401, 401), 0, 2)]
)
def test_metrics_count_what_is_shown(tmp_path, updates, decided, speedup):
    one = arm("sync_allreduce", 801, 0.9, workers=1)
    first, second = updates
    runs = [*arm("sync_allreduce", first, 0.9), *arm("gossip", second, 0.9)]
    folder = write_decided(tmp_path / "made", [*one, *runs])
    numbers = numbers_of(folder)
    assert (numbers["n_situations"], numbers["n_decided"]) == (1, decided)
    assert numbers["best_speedup"] == pytest.approx(speedup, rel=0.05)
    assert numbers["best_speedup_workers"] == (4 if speedup > 1 else 1)
