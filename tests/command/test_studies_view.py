"""Ages of studies in words."""

import pytest

from paceline.command.studies_view import age_of


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
