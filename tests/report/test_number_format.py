import pytest

from paceline.report.number_format import percent, plural, seconds, setting, with_interval


@pytest.mark.parametrize(
    ("value", "text"), [(1.3, "1.30"), (12.345, "12.3"), (1234.5, "1,234"), (-0.5, "-0.50")]
)
def test_seconds_have_three_digits(value, text):
    assert seconds(value) == text


def test_an_interval_has_its_unit_once_and_its_n():
    row = {"x_mean": 0.85, "x_low": 0.8, "x_high": 0.9, "x_n": 3}
    assert with_interval(row, "x", percent) == "85.0 % (80.0 to 90.0), n = 3"
    alone = row | {"x_low": None, "x_high": None, "x_n": 1}
    assert with_interval(alone, "x", percent) == "85.0 % (no interval), n = 1"


def test_an_axis_shows_what_was_set():
    assert [setting(value) for value in (0.1, 32, 2.0, float("nan"), "none")] == [
        "0.1",
        "32",
        "2",
        "null",
        "none",
    ]


def test_plural():
    assert [plural(n, "point") for n in (0, 1, 2)] == ["0 points", "1 point", "2 points"]
