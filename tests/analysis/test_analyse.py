import json

import pytest

from paceline.analysis.analyse import CONCLUSIONS, FOLDER, analyse
from paceline.analysis.tables import read_tables
from paceline.errors import SettingError
from tests.made_reports import fail, make_run, write_reports

OUTPUTS = [*(f"{FOLDER}/{each.name}.csv" for each in CONCLUSIONS), "metrics.json"]


def test_same_tables_in_same_bytes_out(tmp_path):
    folders = [write_reports(tmp_path / name / "made") for name in ("first", "second")]
    for folder in folders:
        analyse(folder)
    first, second = ([(folder / name).read_bytes() for name in OUTPUTS] for folder in folders)
    assert first == second


def test_metrics_name_each_configuration_under_its_kind(tmp_path):
    runs = [make_run(seed=0, images_per_second=8000.0, top1=0.8, test_top1=0.7)]
    folder = write_reports(tmp_path / "made", [*runs, make_run(seed=1, kind="virtual")])
    analyse(folder)
    metrics = json.loads((folder / "metrics.json").read_text())
    name = "scheme=sync_allreduce batch_size=32 workers=1"
    assert metrics["measured"][name] == {
        "n": 1,
        "images_per_second": 8000.0,
        "top1": 0.8,
        "test_top1": 0.7,
        "speedup": 1.0,
    }
    assert metrics["virtual"][name]["n"] == 1
    assert (metrics["n"], metrics["n_finished"], metrics["n_missing"]) == (2, 2, 0)


def test_a_study_in_which_nothing_finished_is_counted(tmp_path):
    folder = write_reports(tmp_path / "made", [fail(make_run(seed=seed)) for seed in (0, 1)])
    analyse(folder)
    assert json.loads((folder / "metrics.json").read_text())["n_failed"] == 2


@pytest.mark.parametrize("name", ["runs.csv", "curves.csv", "study.json"])
def test_a_missing_table_names_the_command_that_makes_it(tmp_path, name):
    folder = write_reports(tmp_path / "made")
    (folder / name).unlink()
    with pytest.raises(
        SettingError, match=rf"study: there is no .*{name}; .*paceline collect made"
    ):
        analyse(folder)


def test_tables_of_other_columns_are_refused(tmp_path):
    folder = write_reports(tmp_path / "made")
    (folder / "runs.csv").write_text("key,status\nabc,finished\n")
    with pytest.raises(SettingError, match="no column reason; first: paceline collect made"):
        analyse(folder)


def test_tables_without_a_point_are_refused(tmp_path):
    folder = write_reports(tmp_path / "made")
    header = (folder / "runs.csv").read_text().splitlines()[0]
    (folder / "runs.csv").write_text(header + "\n")
    with pytest.raises(SettingError, match="no point; first: paceline collect made"):
        analyse(folder)


def test_a_report_without_a_timeline_has_an_empty_one(tmp_path):
    folder = write_reports(tmp_path / "made", [make_run(kind="virtual", workers=2)])
    assert list(read_tables(folder).timeline["phase"][:3]) == ["compute", "wait", "communicate"]
    (folder / "timeline.csv").unlink()
    assert list(read_tables(folder).timeline) == ["key", "worker", "phase", "start", "end"]


def test_tables_without_a_row_have_a_header(tmp_path):
    folder = write_reports(tmp_path / "made", [fail(make_run())])
    analyse(folder)
    assert (
        folder / FOLDER / "clocks.csv"
    ).read_text() == "kind,scheme,batch_size,workers,against\n"
    assert (
        (folder / FOLDER / "equal_time.csv")
        .read_text()
        .startswith("kind,scheme,batch_size,workers,n,")
    )
