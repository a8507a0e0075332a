"""A sweep says at its end which records are of data that have changed during it."""

from paceline.record.data_digest import data_digest, look_again
from paceline.record.provenance import source_digest
from paceline.study.collect import collect
from paceline.study.sweep import checked_study
from tests.made_records import make_record


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
