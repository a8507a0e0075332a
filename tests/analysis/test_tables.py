"""Tables of a study: as they are read, damaged or written."""

import math

import pandas as pd
import pytest
from hypothesis import given, settings

from paceline.analysis.frames import as_csv, as_written, typed_table
from paceline.analysis.tables import implied_by_scheme, read_tables
from paceline.errors import SettingError
from paceline.report.findings import read_findings
from tests.damaged import damages
from tests.made_decisions import made_tuning
from tests.made_reports import (
    fail,
    made_two_schemes,
    make_run,
    write_points,
    write_reports,
)


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


FILES = ("runs.csv", "tuning.csv", "study.json")


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        *((name, None, rf"there is no .*{name}; .*") for name in FILES),
        ("runs.csv", "key,status\nabc,finished\n", "no column reason; first: "),
        ("runs.csv", ",".join(make_run()) + "\n", "no point; first: "),
    ],
)
def test_a_table_that_is_missing_or_empty_names_the_command_that_makes_it(
    tmp_path, name, content, told
):
    path = write_reports(tmp_path / "made") / name
    path.unlink() if content is None else path.write_text(content)
    with pytest.raises(SettingError, match=rf"^study: .*{told}paceline sweep made"):
        read_tables(path.parent)


@pytest.mark.parametrize(
    "content", [b"", b"a\n1", b"a\n\0\n", "\ufeffa\n1\n".encode(), b"a\n1,2\n"]
)
def test_a_table_that_is_cut_off_or_no_plain_text_is_refused(content):
    with pytest.raises(ValueError, match=r"it is empty, cut off|row 1 has more cells"):
        typed_table(content)


def test_what_a_record_lacks_is_empty(tmp_path):
    """A table of one of two points, without one of its columns."""
    runs = [make_run(seed=seed) for seed in (0, 1)]
    folder = write_reports(tmp_path / "made", runs)
    row = {"key": runs[1]["key"], "samples": 32, "updates": 1, "seconds": 2.5, "top1": 0.5}
    write_points(folder, {"curve": [row]})
    curves = read_tables(folder).curves
    assert list(curves["key"]) == [runs[1]["key"]]
    assert list(curves["seconds"]) == [2.5]
    assert curves["real_seconds"].isna().all()


def test_tables_without_a_row_have_a_header(tmp_path):
    folder = write_reports(tmp_path / "made", [fail(make_run())])
    tables = read_findings(folder).concluded
    assert tables.csv("clocks") == "kind,scheme,batch_size,workers,against\n"
    assert tables.csv("configurations").startswith("kind,data,scheme,batch_size,workers,n,")


def test_a_damaged_file_is_read_or_named(tmp_path):
    runs = made_two_schemes(spread=30)
    folder = write_reports(tmp_path / "made", runs, made_tuning(runs, {}))
    whole = {name: (folder / name).read_bytes() for name in FILES}

    @settings(max_examples=100, derandomize=True, database=None, deadline=None)
    @given(damages(whole))
    def is_read_or_named(damage):
        name, content = damage
        path, message = folder / name, name
        path.unlink() if content is None else path.write_bytes(content)
        try:
            read_tables(folder)
        except SettingError as error:
            message = error.message
        path.write_bytes(whole[name])
        assert any(
            file in message for file in FILES
        )  # a column that the other lacks is named there
        assert message.isprintable()

    is_read_or_named()
