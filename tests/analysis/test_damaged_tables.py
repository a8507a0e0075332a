"""A damaged table of a report is read as it is, or refused in one line that names the file."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paceline.analysis.tables import read_tables
from paceline.errors import SettingError
from tests.made_decisions import made_tuning
from tests.made_reports import made_two_schemes, write_reports, write_rows

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
