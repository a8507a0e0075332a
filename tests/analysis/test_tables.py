"""Tables as they are written: rounded for readers, or as they are."""

import pandas as pd
import pytest

from paceline.analysis.frames import DIGITS, write_table

TABLE = pd.DataFrame({"name": ["one"], "value": [1 / 3], "count": [12_345_678]})


@pytest.mark.parametrize(("exact", "value"), [(False, 0.333333333), (True, 1 / 3)])
def test_a_table_has_nine_digits_or_all(exact, value, tmp_path):
    assert DIGITS == 9
    write_table(tmp_path / "made.csv", TABLE, exact=exact)
    assert (tmp_path / "made.csv").read_text() == f"name,value,count\none,{value!r},12345678\n"
