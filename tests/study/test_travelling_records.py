"""A clone that has the archive of a study, and no runs/, trains what is new alone."""

import shutil

import pytest

from paceline.command.sweep_command import print_plan
from paceline.errors import SettingError
from paceline.record.archive import ARCHIVE
from paceline.study.collect import collect
from paceline.study.study_points import Study, study_points
from paceline.study.sweep import checked_study, sweep
from tests.made_records import make_record

UNLOGGED = ["measurement.mlflow.tracking_uri=null"]
RATES = {"tuning": {"values": [0.1, 0.2], "seed": 100}}


@pytest.fixture
def collected(root):
    """The study `made`, collected with three of its four records, in a clone without runs/."""
    for point in study_points("made", root)[:3]:
        make_record(point.folder, point.config, peak_rss_bytes=2**30)
    collect(Study("made", root))
    shutil.rmtree(root / "runs")
    return root


def test_the_archive_has_the_records_of_points_and_trials(root, studied):
    studied("made", RATES, **{"training.rate": "tuned"})
    seen = []

    def run(points):
        """Stand in for a launcher, with the trials and then the points."""
        seen.append(points)
        return [make_record(point.folder, point.config) for point in points]

    assert sweep(checked_study("made", root, UNLOGGED), run)
    collect(Study("made", root))
    shutil.rmtree(root / "runs")
    assert sweep(checked_study("made", root, UNLOGGED), run)
    assert len(seen) == 2
    assert len(list((root / "runs/made").iterdir())) == 3


def test_a_sweep_of_a_clone_runs_what_the_archive_lacks(collected, capsys):
    seen = []

    def run(points):
        seen.extend(points)
        return [None for _ in points]

    assert not sweep(checked_study("made", collected, UNLOGGED), run)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"3 records unpacked from reports/made/{ARCHIVE}"
    assert lines[1:] == ["made: 4 points: 3 finished, 1 to do"]
    assert len(seen) == 1


def test_a_dry_run_counts_what_the_archive_has(collected, capsys):
    """It writes nothing."""
    before = sorted(collected.rglob("*"))
    print_plan(checked_study("made", collected, unpack=False))
    printed = capsys.readouterr().out
    assert printed.startswith(f"3 records to unpack from reports/made/{ARCHIVE}\n")
    assert "4 points: 3 finished, 1 to do; 1 to run\n" in printed
    assert "2.0 GiB of memory in 2 processes" in printed  # as those of the archive needed
    assert sorted(collected.rglob("*")) == before


def test_a_broken_archive_stops_the_sweep_by_its_name(collected):
    (collected / "reports/made" / ARCHIVE).write_text("no archive")
    with pytest.raises(SettingError, match=f"^study: .*reports/made/{ARCHIVE} is not"):
        checked_study("made", collected)
    assert not (collected / "runs").exists()
