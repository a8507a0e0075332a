"""How far a run and a sweep are, by the files that they leave."""

import os

import pytest

from paceline.record.record import partial_folder
from paceline.study.progress import RunWatch, SweepWatch, read_progress
from paceline.study.study_points import study_points
from tests.made_records import make_record

HEADER = "samples,seconds,share,train_loss,images_per_second\n"


def write_progress(folder, text, time):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "progress.csv").write_text(HEADER + text)
    os.utime(folder / "progress.csv", (time, time))


def test_no_whole_row_is_no_progress(tmp_path):
    assert read_progress(tmp_path) is None
    for text in ("", "64,1.0,0.1"):
        write_progress(tmp_path, text, 100)
        assert read_progress(tmp_path) is None


def test_the_last_whole_row_counts_however_long_the_file_is(tmp_path):
    rows = [f"{n},{n}.0,{n / 1000:.4f},0.5,\n" for n in range(1, 500)]
    write_progress(tmp_path, "".join(rows) + "500,500.0", 100)
    assert read_progress(tmp_path) == (0.499, 0.5, None, 100)


def test_a_run_tells_its_share_and_the_rest(tmp_path):
    watch = RunWatch("made", "virtual", tmp_path)
    assert watch.status() == ("made", None, "starting")
    write_progress(tmp_path, "64,1.0,0.1,2.3,512\n", 100)
    assert watch.status() == ("made", 0.1, "training loss 2.3, 512 images/s virtual")
    write_progress(tmp_path, "64,1.0,0.3,2.25,\n", 110)  # 0.7 are left, at 0.02 a second
    assert watch.status() == ("made", 0.3, "35 s left, training loss 2.25")
    write_progress(tmp_path, "64,1.0,1.0,0.25,1024\n", 145)
    assert watch.status().note == "evaluating, training loss 0.25, 1,024 images/s virtual"


@pytest.fixture
def points(root):
    return study_points("made", root)


def test_a_sweep_counts_what_is_done_and_names_the_best(root):
    points = study_points("made", root, ["sweep.jobs=2"])
    watch = SweepWatch("made", root / "runs")
    watch.begin("made", points, points, later=points[:1])
    assert watch.status() == ("made", 0.0, "0 of 4 points, then 1 more")
    make_record(points[0].folder, points[0].config, top1=0.875, wall_seconds=100)
    folder = points[1].folder
    write_progress(partial_folder(folder), "64,1.0,0.5,2.3,512\n", 100)
    status = watch.status()
    assert status.share == (1 + 0.5) / 4
    # half a point and a later one, two at a time; nothing is known of the other scheme
    for part in ("1 of 4", "1.2 minutes", "2 points of unknown length", "seed 0: 87.50%"):
        assert part in status.note


def test_a_record_that_is_made_again_counts_when_it_is_new(root, points):
    make_record(points[0].folder, points[0].config, status="failed", top1=None)
    make_record(points[1].folder, points[1].config)
    points = study_points("made", root)
    watch = SweepWatch("made", root / "runs")
    watch.begin("made", points, [points[0], *points[2:]], later=[])
    assert watch.status().note.startswith("1 of 4 points")
    os.utime(points[0].folder / "result.json", (1, 1))
    assert watch.status().note.startswith("2 of 4 points")
