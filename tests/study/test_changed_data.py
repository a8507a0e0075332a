"""A sweep says which records are of data that have changed since, and renews them when asked."""

import pytest

from paceline.command.sweep_command import print_plan
from paceline.record.data_digest import data_digest, look_again
from paceline.record.provenance import source_digest
from paceline.study.collect import collect
from paceline.study.study_point import to_run
from paceline.study.sweep import checked_study
from tests.made_records import make_record

STALE = ["sweep.rerun=stale"]


@pytest.fixture
def photos(root, monkeypatch):
    monkeypatch.chdir(root)
    (root / "data").mkdir()
    (root / "data/photo").write_text("a cat")
    return root / "data/photo"


def write_records(root, **changes):
    look_again()
    for point in checked_study("made", root).points:
        digest = data_digest(point.config.target("data"))
        made = {"source_digest": source_digest(), "data_digest": digest}
        make_record(point.folder, point.config, **made, **changes)


def test_changed_data_are_said_and_run_again_when_asked(root, photos, capsys):
    write_records(root)
    assert to_run(checked_study("made", root, STALE).points) == []
    photos.write_text("a dog")
    study = checked_study("made", root)
    assert to_run(study.points) == []
    print_plan(study)
    assert "4 of data that have changed since" in capsys.readouterr().out
    study = checked_study("made", root, STALE)
    assert to_run(study.points) == study.points


def test_data_that_change_during_a_sweep_are_found_at_its_end(root, photos, capsys):
    write_records(root)
    study = checked_study("made", root)
    collect(study)
    assert "changed" not in capsys.readouterr().out
    photos.write_text("a dog")
    collect(study)
    assert "4 records are of data that have changed since" in capsys.readouterr().out
