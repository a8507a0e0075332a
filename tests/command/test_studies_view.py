"""Ages of studies in words."""

import pytest
from rich.console import Console

from paceline.command import studies_view
from paceline.command.studies_view import age_of
from paceline.study.overview import Overview


def test_a_study_is_as_old_as_its_newest_run(monkeypatch, tmp_path):
    made = Overview("made", 4, 3, 2, "done", 1e9)
    monkeypatch.setattr(studies_view, "overviews", lambda root: [made])
    console = Console(width=100)
    with console.capture() as said:
        for each in studies_view.studies_view(tmp_path, now=1e9 + 3 * 86400):
            console.print(each)
    (line,) = [line for line in said.get().splitlines() if "made" in line]
    assert line.split() == ["made", "3", "of", "4", "done", "2", "3", "days"]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-3, "0 s"),
        (0, "0 s"),
        (119, "119 s"),
        (120, "2 minutes"),
        (7199, "120 minutes"),
        (7200, "2 hours"),
        (2 * 86400 - 1, "48 hours"),
        (2 * 86400, "2 days"),
    ],
)
def test_an_age_has_the_largest_unit_of_which_there_are_two(seconds, words):
    assert age_of(seconds) == words
