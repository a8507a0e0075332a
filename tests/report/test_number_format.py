import pytest

from paceline.report.number_format import (
    bit_rate,
    percent,
    seconds,
    size,
    with_interval,
)


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


def test_bytes_and_links_have_the_unit_that_a_reader_expects():
    assert [size(value) for value in (30_696, 10**6, 102_228_128)] == ["30.7 kB", "1 MB", "102 MB"]
    rates = [bit_rate(value) for value in (2.5e7, 1.25e8, 1.25e9, 7e9)]
    assert rates == ["200 Mbit/s", "1 Gbit/s", "10 Gbit/s", "56 Gbit/s"]
