"""Tables hold exactly what the study names today, and data that change under it are told of."""

import json
import re
import shutil

import pytest

from paceline.record.archive import ARCHIVE, read_archive
from paceline.record.data_digest import data_digest, look_again
from paceline.record.provenance import source_digest
from paceline.study.collect import collect
from paceline.study.study_point import to_run
from paceline.study.study_points import Study, study_points
from paceline.study.sweep import checked_study
from tests.made_records import make_record, rows_of


@pytest.fixture
def points(root):
    """All points of the study `made`, with records; seed 1 of the second scheme has none."""
    points = study_points("made", root)
    for n, point in enumerate(points[:3]):
        make_record(point.folder, point.config, top1=n / 10, source_digest=source_digest())
    return points


def test_one_row_per_point_in_the_order_of_the_study(root, points):
    runs = rows_of(collect(Study("made", root)) / "runs.csv")
    assert [run["key"] for run in runs] == [point.key for point in points[:3]]
    assert [run["top1"] for run in runs] == ["0.0", "0.1", "0.2"]
    assert [run["seed"] for run in runs] == ["0", "1", "0"]
    assert runs[0]["validation_loss"] == ""
    assert (runs[0]["hardware.cores"], runs[0]["versions.torch"]) == ("2", "2.15.0")


def test_records_of_earlier_settings_are_named_and_left_out(root, points, studied, capsys):
    studied(scheme="sync_allreduce,async_parameter_server", seed="1,2")
    (root / "runs/made/.0123456789ab.7").mkdir()
    folder = collect(Study("made", root))
    about = json.loads((folder / "study.json").read_text())
    today = study_points("made", root)
    settings = about.pop("settings")
    assert (settings["batch_size"], settings["cluster.accelerator"]) == (32, "auto")
    assert "seed" not in settings
    assert "scheme._target_" not in settings
    assert [run["key"] for run in rows_of(folder / "runs.csv")] == [points[1].key]
    assert about == {
        "study": "made",
        "axes": ["scheme", "seed"],
        "question": "Does it?",
        "num_points": 4,
        "missing": [today[n].key for n in (1, 2, 3)],
        "unfit": {},
        "margin": 1.0,
        "target": None,
        "tuning": [],
    }
    out = capsys.readouterr().out
    assert all(key in out for key in about["missing"])
    assert re.findall(r"left out: (\d+)", out) == ["2"]


def test_collecting_twice_gives_the_same_bytes(root, points):
    folder = collect(Study("made", root))
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    collect(Study("made", root))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_record_that_does_not_fit_is_named_and_in_no_number(root, points, capsys):
    """One was damaged, one copied over another, and one is in a folder of no key."""
    (points[0].folder / "curve.csv").write_text("samples,upd")
    shutil.rmtree(points[1].folder)
    shutil.copytree(points[2].folder, points[1].folder)
    shutil.copytree(points[2].folder, points[2].folder.with_name("f" * 12))
    folder = collect(Study("made", root))
    about = json.loads((folder / "study.json").read_text())
    assert [run["key"] for run in rows_of(folder / "runs.csv")] == [points[2].key]
    for name in ("config.yaml", "result.json", "curve.csv", "staleness.csv", "phases.csv"):
        whole = {points[2].key: (points[2].folder / name).read_bytes()}
        assert read_archive(folder / ARCHIVE)[name] == whole
    assert about["unfit"][points[0].key].startswith("curve.csv: ")
    assert points[2].key in about["unfit"][points[1].key]
    assert set(about["missing"]) == {points[n].key for n in (0, 1, 3)}
    out = capsys.readouterr().out
    assert all(key in out for key in about["unfit"])
    assert re.findall(r"left out: (\d+)", out) == ["1"]


def test_data_that_change_during_a_sweep_are_found_at_its_end(root, monkeypatch, capsys):
    monkeypatch.chdir(root)
    photo = root / "data/photo"
    photo.parent.mkdir()
    photo.write_text("a cat")
    look_again()
    study = checked_study("made", root)
    for point in study.points:
        digest = data_digest(point.config.target("data"))
        made = {"source_digest": source_digest(), "data_digest": digest}
        make_record(point.folder, point.config, **made)
    study.refresh()
    collect(study)
    assert "changed" not in capsys.readouterr().out
    photo.write_text("a dog")
    collect(study)
    assert "4 records are of data that have changed since" in capsys.readouterr().out
    assert to_run(checked_study("made", root).points) == []
    assert len(to_run(checked_study("made", root, ["sweep.rerun=stale"]).points)) == 4
