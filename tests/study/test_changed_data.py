"""A sweep says which records are of data that have changed since, and renews them when asked."""

import pytest

from paceline.record.data_digest import data_digest, look_again
from paceline.record.provenance import source_digest
from paceline.study.collect import collect
from paceline.study.sweep import checked_study, to_take_over
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


def test_data_that_change_during_a_sweep_are_found_at_its_end(root, photos, capsys):
    write_records(root)
    study = checked_study("made", root)
    collect(study)
    assert "changed" not in capsys.readouterr().out
    photos.write_text("a dog")
    collect(study)
    assert "4 records are of data that have changed since" in capsys.readouterr().out


def test_records_of_other_data_are_not_taken_over(root, photos, studied):
    modelled = {"defaults": [{"override /data": "made"}, {"override /cluster": "virtual"}]}
    studied("made", modelled, seed="0,1")
    studied("again", modelled, seed="0,1")
    write_records(root, kind="virtual")
    taken = to_take_over(checked_study("again", root).points)
    photos.write_text("a dog")
    assert (len(taken), to_take_over(checked_study("again", root).points)) == (2, {})
