import pytest

from paceline.analysis.analyse import metrics
from paceline.analysis.configuration_table import configuration_table
from paceline.analysis.tables import read_tables
from paceline.errors import SettingError
from paceline.report.findings import read_findings
from tests.made_reports import concluded, fail, make_run, write_points, write_reports


def test_metrics_are_some_numbers(tmp_path):
    runs = [make_run(workers=workers, seed=seed) for workers in (1, 2) for seed in (0, 1, 2)]
    tables = read_tables(write_reports(tmp_path / "made", [*runs, fail(make_run(seed=3))]))
    found, table = metrics(tables, configuration_table(tables)), concluded(tables)
    counts = {"n": 7, "n_finished": 6, "n_diverged": 0, "n_failed": 1, "n_missing": 0}
    best = {name: table[f"{name}_mean"].max() for name in ("test_top1", "images_per_second")}
    assert found == counts | {f"best_{n}": pytest.approx(v, rel=1e-5) for n, v in best.items()}


def test_a_study_in_which_nothing_finished_is_counted(tmp_path):
    runs = [fail(make_run(seed=seed)) for seed in (0, 1)]
    tables = read_tables(write_reports(tmp_path / "made", runs))
    assert metrics(tables, configuration_table(tables))["n_failed"] == 2


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
    tables = read_findings(folder).concluded
    assert tables.csv("clocks") == "kind,scheme,batch_size,workers,against\n"
    assert tables.csv("configurations").startswith("kind,data,scheme,batch_size,workers,n,")
