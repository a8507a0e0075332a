"""Tables of a study: as they are read, damaged or written."""

import math

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paceline.analysis.frames import as_csv, as_written, typed_table
from paceline.analysis.tables import implied_by_scheme, read_tables
from paceline.errors import SettingError
from paceline.report.findings import read_findings
from tests.made_decisions import made_tuning
from tests.made_reports import (
    fail,
    made_two_schemes,
    make_run,
    write_points,
    write_reports,
    write_rows,
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


@pytest.mark.parametrize("name", ["runs.csv", "tuning.csv", "study.json"])
def test_a_missing_table_names_the_command_that_makes_it(tmp_path, name):
    folder = write_reports(tmp_path / "made")
    (folder / name).unlink()
    with pytest.raises(SettingError, match=rf"study: there is no .*{name}; .*paceline sweep made"):
        read_tables(folder)


def test_tables_of_other_columns_are_refused(tmp_path):
    folder = write_reports(tmp_path / "made")
    (folder / "runs.csv").write_text("key,status\nabc,finished\n")
    with pytest.raises(SettingError, match="no column reason; first: paceline sweep made"):
        read_tables(folder)


def test_tables_without_a_point_are_refused(tmp_path):
    folder = write_reports(tmp_path / "made")
    header = (folder / "runs.csv").read_text().splitlines()[0]
    (folder / "runs.csv").write_text(header + "\n")
    with pytest.raises(SettingError, match="no point; first: paceline sweep made"):
        read_tables(folder)


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


FILES = ("runs.csv", "tuning.csv", "study.json")
CELLS = st.sampled_from(["", "x", "-1", "nan", "1e400", "0.5", "[]", "<script>", "\0", '"', "../x"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    runs = made_two_schemes(spread=30)
    folder = write_reports(tmp_path_factory.mktemp("whole") / "made", runs)
    tuning = made_tuning(runs, {})
    write_rows(folder / "tuning.csv", list(tuning[0]), tuning)
    return folder


@st.composite
def damages(draw):
    """A function that cuts a file, flips a byte, retypes a cell, or repeats or drops a line."""
    place, how = draw(st.floats(0, 0.999)), draw(st.integers(0, 4))
    cell, byte = draw(CELLS), draw(st.integers(1, 255))

    def damaged(content):
        at = int(place * len(content))
        if how == 0:
            return content[:at]
        if how == 1:
            return content[:at] + bytes([content[at] ^ byte]) + content[at + 1 :]
        lines = content.splitlines(keepends=True)
        row = int(place * len(lines))
        if how == 2:
            return b"".join([*lines[:row], lines[row], *lines[row:]])
        if how == 3:
            return b"".join([*lines[:row], *lines[row + 1 :]])
        cells = lines[row].split(b",")
        cells[int(place * 7919) % len(cells)] = cell.encode()
        return b"".join([*lines[:row], b",".join(cells), *lines[row + 1 :]])

    return damaged


@settings(
    max_examples=60,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(name=st.sampled_from(FILES), damaged=damages())
def test_a_damaged_file_is_read_or_named(folder, name, damaged):
    whole = (folder / name).read_bytes()
    (folder / name).write_bytes(damaged(whole))
    message = name
    try:
        read_tables(folder)
    except SettingError as error:
        message = error.message
    finally:
        (folder / name).write_bytes(whole)
    assert any(file in message for file in FILES)  # a column that the other lacks is named there
    assert message.isprintable()
