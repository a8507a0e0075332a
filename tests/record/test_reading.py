"""A record is believed only if its files are whole and agree with each other and its place."""

import csv
import itertools
import json
import os
import shutil

import pytest
import yaml

from paceline.errors import SettingError
from paceline.record import reading
from paceline.record.key import RETIRED
from paceline.record.numbers import NUMBERS
from paceline.record.reading import fault_of, read_config, read_result, require_fit
from paceline.record.rows import POINT_TABLES, text_of
from tests.made_records import made_config, make_record

RANGED = ("images", "1/s", "s", "share", "updates", "bytes", "images/s", "")
TIMELINE = "worker,phase,start,end\n0,compute,0.0,0.5\n0,wait,0.5,1.0\n"

AGREED = {  # with the tables
    "samples": 128,
    "updates_per_second": 1.0,
    "staleness_mean": 1.0,
    "staleness_max": 1,
    "stale_share": 1.0,
    "bytes_sent": 1000,
    "bytes_received": 2000,
    "activation_bytes_sent": 0,
    "test_images": 9,
    "test_top1": 0.0,
}


@pytest.mark.parametrize(("name", "other"), [("copies", 2), ("feed", "first_of_node")])
def test_a_setting_that_is_gone_is_left_out_at_the_value_of_todays_code(name, other, tmp_path):
    today = made_config()
    same, gone = (
        made_config(data={**today.values["data"], name: value})
        for value in (RETIRED[f"data.{name}"], other)
    )
    for config in (same, gone):
        make_record(tmp_path / config.folder, config)
    assert same.key == today.key
    assert read_config(tmp_path / same.folder) == today
    refused(tmp_path / gone.folder, f"of an earlier version, whose setting data.{name} is gone")


@pytest.fixture
def record(tmp_path):
    """The folder of a whole record with every number and every table."""
    config = made_config()
    folder = tmp_path / config.folder
    numbers = {each.name: 0.5 for each in NUMBERS if each.unit != "text"} | AGREED
    make_record(folder, config, servers=1, **numbers)
    (folder / "timeline.csv").write_text(TIMELINE)
    (folder / "test.csv").write_text(f"images,right\n9,{text_of(bytes(2))}\n")
    return folder


def change(folder, **changes):
    """Give fields of result.json other values; `...` removes one."""
    path = folder / "result.json"
    result = json.loads(path.read_text()) | changes
    kept = {name: value for name, value in result.items() if value is not ...}
    path.write_text(json.dumps(kept, indent=1))


def each(folder, cases, name="result.json"):
    """The cases, after each of which this file is whole again."""
    whole = (folder / name).read_text()
    for case in cases:
        yield case
        (folder / name).write_text(whole)
        reading._read.clear()  # two changes may have one time


def refused(folder, fault=""):
    found = fault_of(folder)
    assert found is not None
    assert fault in found
    assert "\n" not in found
    assert read_result(folder) is None
    with pytest.raises(SettingError, match=r"^key: the record .* does not fit: "):
        require_fit(folder)


def test_a_whole_record_fits(record):
    assert fault_of(record) is None
    assert read_result(record)["top1"] == 0.5
    assert require_fit(record) == read_result(record)


def test_where_no_record_is_there_is_no_fault(tmp_path):
    assert read_result(tmp_path / "runs/made/0123456789ab") is None
    assert fault_of(tmp_path / "runs/made/0123456789ab") is None
    with pytest.raises(SettingError, match=r"^key: there is no record in"):
        require_fit(tmp_path / "runs/made/0123456789ab")


def test_a_record_that_is_mended_or_damaged_is_read_anew(record):
    change(record, top1=7)
    refused(record, "top1")
    change(record, top1=0.5, lr=0.25)
    assert read_result(record)["lr"] == 0.25
    (record / "curve.csv").write_text("")
    refused(record, "curve.csv")


def test_numbers_that_earlier_code_lacked_may_be_missing(record):
    kept = ("samples", "seconds", "top1")
    change(record, **{each.name: ... for each in NUMBERS if each.name not in kept})
    for name in LATER:
        (record / name).unlink()
    assert fault_of(record) is None


LATER = ("timeline.csv", "test.csv")
WHOLE = ("config.yaml", "result.json", "curve.csv", "staleness.csv", "phases.csv", *LATER)


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize(
    "damage", ["empty", "cut", "bytes", "nothing", "folder", "fifo", "dangling", "huge", "one byte"]
)
def test_a_damaged_file_is_named(record, name, damage):
    path = record / name
    whole = path.read_bytes()
    path.unlink()
    match damage:
        case "empty":
            path.write_bytes(b"")
        case "cut":
            path.write_bytes(whole[: len(whole) * 2 // 3])
        case "bytes":
            path.write_bytes(b"\xff\xfe" + whole)
        case "folder":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
        case "dangling":
            path.symlink_to("nowhere")
        case "huge":
            path.write_bytes(whole)
            os.truncate(path, 2**26 + 1)
        case "one byte":
            path.write_bytes(whole[:10] + b"\0" + whole[11:])
    if name == "result.json" and damage == "nothing":
        assert (read_result(record), fault_of(record)) == (None, None)
    elif name in LATER and damage in ("nothing", "dangling"):
        assert fault_of(record) is None  # records of earlier code have none
    else:
        refused(record, name)


@pytest.mark.parametrize(
    "text",
    [
        "null",
        "[]",
        "3",
        '"finished"',
        "{}",
        "{",
        "[" * 100_000,
        "{'status': 'finished'}",
    ],
)
def test_what_is_no_object_of_json_is_no_result(record, text):
    (record / "result.json").write_text(text)
    refused(record, "result.json")


def test_a_number_that_json_lacks_is_none(record):
    path, values = record / "result.json", ("NaN", "Infinity", "-Infinity", "1e400", "-1e400")
    names = ("top1", "seconds", "images_per_second", "wall_seconds")
    for name, value in each(record, itertools.product(names, values)):
        change(record, **{name: "XX"})
        path.write_text(path.read_text().replace('"XX"', value))
        refused(record, "result.json")


def test_a_field_that_is_there_twice_is_no_field(record):
    path = record / "result.json"
    path.write_text(path.read_text().replace('"top1":', '"top1": 0.25, "top1":'))
    refused(record, "top1 occurs twice")


def test_a_number_out_of_its_range_is_none(record):
    cases = [
        (number.name, value)
        for number in NUMBERS
        if number.unit in RANGED
        for value in (-100, "0.5", [0.5], {"a": 1}, True)
    ]
    cases += [(number.name, 5.0) for number in NUMBERS if number.unit == "share"]
    for name, value in each(record, cases):
        change(record, **{name: value})
        refused(record, name)


@pytest.mark.parametrize("name", [each.name for each in NUMBERS if each.unit == "nats"])
def test_a_loss_is_a_number_below_zero_too(record, name):
    curve = record / "curve.csv"
    curve.write_text(curve.read_text().replace(",0.5,0.5,0.5,0.5\n", ",-0.5,-0.5,0.5,0.5\n"))
    change(record, **{"train_loss": -0.5, "validation_loss": -0.5, name: -0.5})
    assert fault_of(record) is None
    change(record, **{name: "low"})
    refused(record, name)


FIELDS = {
    "status": ["hacked", None, 3, ""],
    "reason": [None, 3],
    "kind": ["guessed", "<script>", None],
    "study": ["../../etc", "other", None, 3],
    "key": ["f" * 12, "0123", "", None, 3],
    "data": [None, "other", 3],
    "model": [None, "other"],
    "scheme": [None, "<script>alert(1)</script>", "other"],
    "cluster": [None, "other"],
    "workers": [0, -1, 2, 1.5, "1", None],
    "servers": [-1, "none", None],
    "batch_size": [0, 64, "32", None],
    "seed": ["0", 1, -1, 0.5, None],
    "started": ["yesterday", 5, None],
    "wall_seconds": ["3", None],
    "jobs": [0, "two"],
    "hardware": [None, [], "cpu"],
    "versions": [None, [], {"torch": 2}],
    "commit": [None, 3],
    "source_digest": [None, 3],
}


def test_a_field_that_is_missing_or_not_what_it_should_be_is_named(record):
    cases = [(name, value) for name, values in FIELDS.items() for value in values]
    cases += [(name, ...) for name in (*FIELDS, "top1", "samples") if name != "jobs"]
    for name, value in each(record, cases):
        change(record, **{name: value})
        refused(record, name)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("workers", 2),
        ("batch_size", 64),
        ("seed", 1),
        ("study", "other"),
        ("data", {"_target_": "paceline.data.synthetic.Synthetic", "num_train": 7}),
        ("names", None),
        ("data", None),
        ("data", 5),
        ("seed", None),
        ("added", 1),
    ],
)
def test_settings_of_another_point_are_no_settings_of_this(record, name, value):
    config = yaml.safe_load((record / "config.yaml").read_text())
    (record / "config.yaml").write_text(yaml.safe_dump(config | {name: value}))
    refused(record)


@pytest.mark.parametrize(
    "text",
    ["[]", "null", "5", "study: made", "a: [", "&a [*a]", "!!python/object/apply:os.getpid []"],
)
def test_what_is_no_settings_is_refused(record, text):
    (record / "config.yaml").write_text(text)
    refused(record, "config.yaml")


def test_a_record_in_the_place_of_another_is_refused(record):
    for place in (record.with_name("0" * 12), record.parents[1] / "other" / record.name):
        shutil.copytree(record, place)
        refused(place)


CELLS = {
    "curve": {
        "samples": ["", "x", "-1", "1.5", "nan"],
        "updates": ["", "-1"],
        "seconds": ["", "-1", "nan", "inf", "1e400", "x"],
        "train_loss": ["x", "nan", "inf"],
        "top1": ["", "1.5", "-0.5", "nan", "x"],
        "top5": ["", "5"],
    },
    "staleness": {"server": ["", "-1"], "staleness": ["-1", "0.5", ""], "pushes": ["-1", ""]},
    "phases": {
        "worker": ["", "-1", "one"],
        "steps": ["-1", "", "2.5"],
        "seconds_data": ["-1", "nan", ""],
        "seconds_compute": ["-1", "inf"],
        "seconds_communicate": ["-1", "x"],
        "bytes_sent": ["-1", ""],
    },
    "timeline": {"worker": ["", "-1"], "phase": [""], "start": ["-1", "x"], "end": ["nan", ""]},
    "test": {"images": ["", "-1", "x"], "right": ["", "!", "AAAA", text_of(bytes(3))]},
}


@pytest.mark.parametrize("table", CELLS)
def test_a_cell_that_is_no_such_number_is_named(record, table):
    path = record / f"{table}.csv"
    cases = [(column, cell) for column, cells in CELLS[table].items() for cell in cells]
    for column, cell in each(record, cases, path.name):
        rows = list(csv.DictReader(path.read_text().splitlines()))
        rows[-1][column] = cell
        lines = [",".join(rows[0]), *(",".join(row.values()) for row in rows)]
        path.write_text("\n".join(lines) + "\n")
        refused(record, f"{table}.csv: row {len(rows)}, {column}")


@pytest.mark.parametrize("table", POINT_TABLES, ids=lambda table: table.name)
def test_a_table_of_other_columns_or_ragged_rows_is_named(record, table):
    path = record / f"{table.name}.csv"
    whole = path.read_text()
    header, rest = whole.split("\n", 1)
    for text in (
        f"{header},other\n{rest}",
        f"{header},{table.columns[0]}\n{rest}",
        whole + "1\n",
        whole + "1," * 30 + "\n",
        whole.removesuffix("\n"),
        whole + '"open\n',
    ):
        path.write_text(text)
        refused(record, f"{table.name}.csv")


@pytest.mark.parametrize("name", ["curve", "phases"])
def test_a_finished_run_has_rows(record, name):
    header = (record / f"{name}.csv").read_text().split("\n")[0]
    (record / f"{name}.csv").write_text(f"{header}\n")
    refused(record, f"{name}.csv: a finished record needs rows")
    change(record, status="diverged")
    assert fault_of(record) is None


@pytest.mark.parametrize("evaluations", [0, 10])
def test_only_a_run_that_measures_throughput_finishes_without_a_score(tmp_path, evaluations):
    config = made_config()
    config = config.replaced(measurement={"evaluations": evaluations})
    folder = tmp_path / config.folder
    make_record(folder, config, rows=0, top1=None)
    if evaluations:
        refused(folder, "result.json: top1: a finished record needs it")
    else:
        assert read_result(folder) is not None


def test_a_failed_run_needs_no_table_and_no_number(record):
    for table in POINT_TABLES:
        (record / f"{table.name}.csv").unlink()
    change(record, status="failed", **{each.name: None for each in NUMBERS})
    assert fault_of(record) is None
