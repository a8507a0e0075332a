"""The command that comes next for a study."""

import os

import pytest

from paceline.study.overview import next_command


@pytest.fixture
def reported(tmp_path):
    """A root with the page of a study that has no record."""
    page = tmp_path / "reports/made/index.html"
    page.parent.mkdir(parents=True)
    page.touch()
    return tmp_path


@pytest.mark.parametrize(
    ("exchanges", "first", "later"),
    [
        (False, "sweep", "paceline collect made && paceline report made"),
        (True, "exchange", "paceline report made"),
    ],
)
def test_points_come_before_tables_and_tables_before_the_page(exchanges, first, later, tmp_path):
    def told(complete):
        return next_command("made", tmp_path, complete=complete, exchanges=exchanges)

    assert told(False) == f"paceline {first} made"
    assert told(True) == later


def test_a_page_is_opened_until_a_record_is_newer(reported):
    for folder in (reported / "reports/made").rglob("*"):
        os.utime(folder, (1000, 1000))
    assert (
        next_command("made", reported, complete=True, exchanges=False)
        == "paceline show made --open"
    )
    record = reported / "runs/made/abc/result.json"
    record.parent.mkdir(parents=True)
    record.write_text("{}")
    os.utime(record, (2000, 2000))
    command = next_command("made", reported, complete=True, exchanges=False)
    assert command.startswith("paceline collect made")
