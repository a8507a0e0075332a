"""The command that comes next for a study."""

import os

from paceline.command.show_command import next_command


def test_points_come_before_the_page(tmp_path):
    assert next_command("made", tmp_path, complete=False) == "paceline sweep made"
    assert next_command("made", tmp_path, complete=True) == "paceline report made"


def test_a_page_is_opened_until_a_record_is_newer(tmp_path):
    page = tmp_path / "reports/made/index.html"
    record = tmp_path / "runs/made/abc/result.json"
    for file, time, command in (
        (page, 1000, "paceline show made --open"),
        (record, 2000, "paceline report made"),
    ):
        file.parent.mkdir(parents=True)
        file.write_text("{}")
        for path in (*file.parent.rglob("*"), file.parent):
            os.utime(path, (time, time))
        assert next_command("made", tmp_path, complete=True) == command
