"""A clone that has the archive of a study, and no runs/, trains what is new alone."""

import re
import shutil
from pathlib import Path

import pytest

from paceline import cli
from paceline.errors import SettingError
from paceline.record.archive import write_archive
from paceline.record.record import records_in
from paceline.study.collect import collect
from paceline.study.study_points import Study, study_points
from paceline.study.sweep import checked_study, sweep
from tests.made_records import SEARCH, make_record

UNLOGGED = ["measurement.mlflow.tracking_uri=null"]


@pytest.fixture
def collected(root):
    """The study `made`, collected with three of its four records, in a clone without runs/."""
    for point in study_points("made", root)[:3]:
        make_record(point.folder, point.config)
    collect(Study("made", root))
    shutil.rmtree(root / "runs")
    return root


def test_a_sweep_of_a_clone_runs_what_the_archive_lacks(collected, capsys):
    seen = []

    def run(points):
        seen.extend(points)
        return [None for _ in points]

    assert not sweep(checked_study("made", collected, UNLOGGED), run)
    assert "3 finished, 1 to do" in capsys.readouterr().out
    assert len(seen) == 1


def test_a_study_that_is_only_opened_is_not_warned_of(collected, capsys):
    """Its sweep opens it once more, and warns then."""
    (collected / "params.yaml").write_text("")
    checked_study("made", collected, checks=False)
    assert capsys.readouterr().err == ""
    checked_study("made", collected)
    assert "params.yaml is not read" in capsys.readouterr().err


@pytest.fixture
def elsewhere(root, tmp_path):
    """An archive of another machine: three of four records, and one of another setting."""

    there = tmp_path / "there/made"
    for overrides, which in (((), slice(3)), (("training.epochs=3",), slice(1))):
        for point in study_points("made", root, overrides)[which]:
            make_record(there / point.key, point.config)
    write_archive(tmp_path / "there.tar.xz", there.iterdir())
    return tmp_path / "there.tar.xz"


def test_records_of_another_machine_are_taken_up_by_key(root, elsewhere, capsys):
    archive, points = elsewhere, study_points("made", root)
    make_record(points[0].folder, points[0].config, images_per_second=1.0)
    failed = {"status": "failed", "environment": True, "reason": "no memory"}
    make_record(points[1].folder, points[1].config, **failed)
    kept = points[0].folder.joinpath("result.json").read_bytes()
    before = sorted(root.rglob("*"))
    asked = checked_study("made", root, unpack=False, source=archive)
    assert [each.status for each in asked.points] == ["finished"] * 3 + [None]
    counts = ["2", "1", "1"]  # taken up, of other settings, with another result here
    assert re.findall(r"(?:^|; )(\d+) ", capsys.readouterr().out) == counts
    assert sorted(root.rglob("*")) == before
    study = checked_study("made", root, source=archive)
    assert re.findall(r"(?:^|; )(\d+) ", capsys.readouterr().out) == counts
    assert [each.status for each in study.points] == ["finished"] * 3 + [None]
    assert points[0].folder.joinpath("result.json").read_bytes() == kept
    checked_study("made", root, source=archive)
    assert re.findall(r"(?:^|; )(\d+) ", capsys.readouterr().out) == ["0", "1", "1"]


def test_points_and_trials_that_follow_from_trials_come_back(root, studied, tmp_path):
    """The keys of later rounds, and of the points, are known only after the earlier ones."""
    studied("made", {"tuning": SEARCH}, seed="0,1", **{"training.rate": "tuned"})
    seen = []

    def run(points):
        """Stand in for a launcher, with the trials of each round and then the points."""
        seen.append(points)
        return [make_record(point.folder, point.config) for point in points]

    assert sweep(checked_study("made", root, UNLOGGED), run)
    folders = records_in(root / "runs/made")
    write_archive(tmp_path / "all.tar.xz", folders)
    collect(Study("made", root))
    shutil.rmtree(root / "runs")
    assert sweep(checked_study("made", root, UNLOGGED), run)  # from its own archive
    assert len(seen) == 3
    assert len(folders) == len(records_in(root / "runs/made")) == 6
    for folder in ("runs", "reports"):
        shutil.rmtree(root / folder)
    study = checked_study("made", root, source=tmp_path / "all.tar.xz")
    assert [point.status for point in study.points] == ["finished"] * 2
    assert len(records_in(root / "runs/made")) == 6


def test_a_bad_file_is_refused_in_a_line(root, studied, elsewhere, tmp_path):
    cut = tmp_path / "cut.tar.xz"
    cut.write_bytes(elsewhere.read_bytes()[:-50])
    studied("other", seed="0,1")
    for study, file, why in (
        ("made", tmp_path / "none", "No such file"),
        ("made", tmp_path, "it is not a regular file"),
        ("made", cut, "ended before the end"),
        ("other", elsewhere, "it belongs to the study 'made'"),
    ):
        with pytest.raises(SettingError, match=f"^--from: {file} .*{why}"):
            checked_study(study, root, source=Path(file))
    assert not (root / "runs").exists()


def test_the_file_is_named_as_in_a_shell(root, elsewhere, monkeypatch):
    """In a folder below the project's root."""
    (root / "below").mkdir()
    monkeypatch.chdir(root / "below")
    asked = cli._parse(["sweep", "made", "--from", "../there.tar.xz", "--dry-run"])
    monkeypatch.chdir(root)
    assert checked_study("made", root, unpack=False, source=asked.source).points[0].result
