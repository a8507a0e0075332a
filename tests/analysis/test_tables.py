"""Tables as they are written, rounded for readers."""

import math

import pandas as pd

from paceline.analysis.frames import as_csv, as_written, typed_table
from paceline.analysis.tables import implied_by_scheme
from tests.made_reports import make_run


def test_a_table_is_as_its_file_says_it():
    table = pd.DataFrame(
        {
            "name": ["one", None],
            "value": [1 / 3, math.nan],
            "mixed": [12_345_678, None],
            "count": [12_345_678, 1],
        }
    )
    written = as_written(table)
    text = "name,value,mixed,count\none,0.333333333,12345678,12345678\n,,,1\n"
    assert as_csv(written) == as_csv(table) == text
    pd.testing.assert_frame_equal(written, typed_table(text.encode()), check_dtype=False)


def test_a_setting_that_follows_from_the_scheme_is_told_per_scheme(made):
    """Each scheme has one period, so that it is no axis by itself."""
    periods = {"local_sgd": 8, "mixed": 3}
    runs = [
        make_run(scheme, workers, **{"scheme.period": period})
        for scheme, period in periods.items()
        for workers in (2, 4)
    ]
    tables = made(runs, axes=["scheme", "workers", "scheme.period"])
    assert "scheme.period" not in tables.axes
    told = implied_by_scheme(tables)
    assert dict(zip(told["scheme"], told["scheme.period"], strict=True)) == periods
