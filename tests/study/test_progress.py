"""How far a run and a sweep are, by the files that they leave, and how that is shown."""

import io
import os
import threading

from paceline.record.reading import record_version
from paceline.record.record import partial_folder
from paceline.study.compose import composed
from paceline.study.progress import (
    Status,
    display,
    read_progress,
    result_line,
    run_status,
    stage_status,
    status_line,
    with_time_left,
)
from paceline.study.study_points import study_points
from tests.made_records import made_result, make_record
from tests.tiny import REPOSITORY

HEADER = "samples,seconds,share,train_loss,images_per_second\n"
BEGUN = Status("made", 0.25, "1 of 4 points")


def write_progress(folder, text):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "progress.csv").write_text(HEADER + text)


def test_the_last_whole_row_counts_however_long_the_file_is(tmp_path):
    assert read_progress(tmp_path) is None
    for text in ("", "64,1.0,0.1"):
        write_progress(tmp_path, text)
        assert read_progress(tmp_path) is None
    rows = [f"{n},{n}.0,{n / 1000:.4f},0.5,\n" for n in range(1, 500)]
    write_progress(tmp_path, "".join(rows) + "500,500.0")
    assert read_progress(tmp_path) == (0.499, 0.5, None)


def test_a_run_tells_its_share(tmp_path):
    assert run_status("made", "virtual", tmp_path) == ("made", None, "starting")
    write_progress(tmp_path, "64,1.0,0.3,2.25,\n")
    assert run_status("made", "virtual", tmp_path) == ("made", 0.3, "training loss 2.25")
    write_progress(tmp_path, "64,1.0,1.0,0.25,1024\n")
    note = "evaluating, training loss 0.25, 1,024 images/s virtual"
    assert run_status("made", "virtual", tmp_path) == ("made", 1.0, note)


def test_the_line_of_a_point_says_what_disturbed_it():
    """Beyond a tenth of its cores, or a hundredth of its seconds."""
    config = composed([], REPOSITORY)
    result = made_result(config, config.key) | {"images_per_second": 512.0, "wall_seconds": 71}
    for others, stopped in ((None, 0.0), (0.09, 0.7), (0.35, 0), (0.0, 12)):
        disturbed = result | {"load_of_others": others, "stopped_seconds": stopped}
        line = result_line(None, config, disturbed, "71 s")
        assert ("35 % of its cores" in line) == (others == 0.35)
        assert ("stood still for 12.0 s" in line) == (stopped == 12)
        assert "disturbed" not in result_line(None, config, disturbed | {"kind": "virtual"}, "")


def test_the_rest_is_as_fast_as_what_was_seen():
    shares, seconds = iter([None, 0.1, 0.3, 1.0]), iter([100, 100, 110])
    look = with_time_left(lambda: Status("made", next(shares), "why"), lambda: next(seconds))
    notes = [look().note for _ in range(3)]
    assert notes == ["why", "why", "35 s left, why"]  # 0.7 are left, at 0.02 a second


def test_a_sweep_counts_records_that_are_new_and_what_is_under_way(root):
    points = study_points("made", root)
    make_record(points[0].folder, points[0].config)
    make_record(points[1].folder, points[1].config, status="failed", top1=None)
    before = {each.key: record_version(each.folder) for each in points[1:]}
    assert stage_status("made", points, before) == ("made", 0.25, "1 of 4 points")
    os.utime(points[1].folder / "result.json", (1, 1))
    write_progress(partial_folder(points[2].folder), "64,1.0,0.5,2.3,512\n")
    assert stage_status("made", points, before) == ("made", 2.5 / 4, "2 of 4 points")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_without_a_terminal_a_line_comes_at_the_start_and_every_thirty_seconds():
    file, seconds = io.StringIO(), iter([0.0, 0.0, 29.0, 30.0, 30.0])
    with display(file, now=lambda: next(seconds)) as show:
        show(Status("made", None, "starting"))
        for _ in range(3):
            show(BEGUN)
    assert file.getvalue().splitlines() == ["progress: made: 25 %, 1 of 4 points"] * 2


def test_on_a_terminal_a_bar_comes_and_goes():
    file = Terminal()
    with display(file) as show:
        show(Status("made", None, "starting"))
        show(BEGUN)
        assert "starting" in file.getvalue()
        assert "1 of 4 points" in file.getvalue()
        shown = len(file.getvalue())
    assert file.getvalue()[shown:].endswith("\x1b[2K")  # erased


def test_the_state_is_asked_for_until_the_work_ends(monkeypatch, capsys):
    monkeypatch.setattr("paceline.study.progress._PERIOD", 0.01)
    asked = threading.Event()
    looks = iter([FileNotFoundError(), BEGUN])

    def status():
        look = next(looks, None)
        if isinstance(look, OSError):
            raise look
        if look is None:  # what came before has been shown
            asked.set()
        return BEGUN

    with status_line(status):
        assert asked.wait(100)
    assert capsys.readouterr() == ("", "progress: made: 25 %, 1 of 4 points\n")
    assert not [thread for thread in threading.enumerate() if thread.name == "status"]
