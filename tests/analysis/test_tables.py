"""Tables as they are written: rounded for readers, or as they are."""

import pandas as pd
import pytest

from paceline.analysis.frames import DIGITS, as_csv
from paceline.analysis.tables import implied_by_scheme
from tests.made_reports import make_run

TABLE = pd.DataFrame({"name": ["one"], "value": [1 / 3], "count": [12_345_678]})


@pytest.mark.parametrize(("exact", "value"), [(False, 0.333333333), (True, 1 / 3)])
def test_a_table_has_nine_digits_or_all(exact, value):
    assert DIGITS == 9
    assert as_csv(TABLE, exact=exact) == f"name,value,count\none,{value!r},12345678\n"


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
