"""Verdicts are rows: a test, a README or `dvc metrics` can read them."""

import pytest

from paceline.analysis.verdicts import verdicts
from tests.made_reports import fail, made_two_schemes, make_run


def asked(made, rows, what):
    table = verdicts(made(rows))
    return table[table["what"] == what].to_dict("records")


def words(made, rows, what):
    return [row["verdict"] for row in asked(made, rows, what) if row["most_workers"]]


def test_what_the_numbers_tell_apart(made):
    speed, accuracy = (
        row for row in asked(made, made_two_schemes(), "scheme") if row["workers"] == 2
    )
    assert (speed["metric"], speed["verdict"], speed["n"]) == ("images_per_second", "higher", 3)
    assert speed["against"] == "sync_allreduce"
    assert speed["mean"] == pytest.approx(1.2, rel=1e-3)
    assert (accuracy["metric"], accuracy["verdict"]) == ("test_top1", "lower")
    assert accuracy["mean"] == pytest.approx(-0.1)
    assert words(made, made_two_schemes(), "workers") == ["higher", "higher"]


def test_what_they_do_not(made):
    rows = made_two_schemes(spread=-700, accuracy=0.9)
    assert words(made, rows, "scheme") == ["not told apart"] * 2
    assert words(made, rows, "workers") == ["not told apart"] * 2


def test_a_paired_difference_is_not_enough_where_own_intervals_overlap(made):
    rows = [
        run | {"images_per_second": run["images_per_second"] * (1 + run["seed"])}
        for run in made_two_schemes(spread=0)
    ]
    speed, _ = words(made, rows, "scheme")
    assert speed == "not told apart"


def test_one_seed_or_none_tells_nothing(made):
    assert words(made, made_two_schemes(seeds=(0,)), "scheme") == ["one seed"] * 2
    assert words(made, made_two_schemes(seeds=(0,)), "workers") == ["one seed"] * 2
    unknown = [run | {"test_top1": None, "top1": None} for run in made_two_schemes()]
    assert words(made, unknown, "scheme") == ["higher", "unknown"]


def test_rows_with_fewer_workers_are_marked(made):
    rows = asked(made, made_two_schemes(), "scheme")
    assert [(row["workers"], row["most_workers"]) for row in rows] == [(1, 0)] * 2 + [(2, 1)] * 2


def test_equal_rates_are_not_told_apart_by_rounding(made):
    """A ratio that misses one by the last digit of a sum is one in every table."""
    rows = [
        run | {"images_per_second": 0.1 + 0.2 if run["workers"] == 1 else 0.3}
        for run in made_two_schemes()
    ]
    assert set(words(made, rows, "workers")) == {"not told apart"}


def test_where_every_seed_diverged(made):
    rows = [make_run(workers=8, seed=s) for s in (0, 1)]
    lost = [fail(make_run(workers=16, seed=s), "diverged", "NaN") for s in (0, 1)]
    (row,) = asked(made, rows + lost, "diverged")
    assert (row["workers"], row["n"], row["verdict"]) == (16, 2, "every seed diverged")
