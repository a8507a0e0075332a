"""The command that comes next for a study."""

import os

import pytest

from paceline.command.studies_view import next_command


@pytest.fixture
def reported(tmp_path):
    """A root with the page of a study that has no record."""
    page = tmp_path / "reports/made/index.html"
    page.parent.mkdir(parents=True)
    page.touch()
    return tmp_path


def test_points_come_before_the_page(tmp_path):
    assert next_command("made", tmp_path, complete=False) == "paceline sweep made"
    assert next_command("made", tmp_path, complete=True) == "paceline report made"


def test_a_page_is_opened_until_a_record_is_newer(reported):
    for folder in (reported / "reports/made").rglob("*"):
        os.utime(folder, (1000, 1000))
    assert next_command("made", reported, complete=True) == "paceline show made --open"
    record = reported / "runs/made/abc/result.json"
    record.parent.mkdir(parents=True)
    record.write_text("{}")
    os.utime(record, (2000, 2000))
    command = next_command("made", reported, complete=True)
    assert command == "paceline report made"
