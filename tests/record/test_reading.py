"""A record is believed only if its files are whole and agree with each other and its place.

Any damage is named, or leaves a record that can be read; and reading runs no code.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache

import pytest
import yaml
from hypothesis import given, settings

from paceline.analysis.frames import typed_table
from paceline.errors import SettingError
from paceline.record.archive import ARCHIVE, read_archive
from paceline.record.fields import numbers_in
from paceline.record.foreign_file import UnfitError, read_foreign
from paceline.record.key import RETIRED
from paceline.record.point import Point
from paceline.record.point_config import PointConfig
from paceline.record.reading import checked_result, fault_of, read_config, read_result, require_fit
from paceline.record.report_files import read_about, read_values
from paceline.record.result import NUMBERS
from paceline.record.rows import POINT_TABLES, text_of
from paceline.record.target import GROUPS, own_classes
from paceline.study.compose import composed
from tests.damaged import damages
from tests.made_records import made_config, make_record
from tests.tiny import REPOSITORY

SERVED = {"_target_": "paceline.scheme.async_parameter_server.AsyncParameterServer", "servers": 1}


@pytest.mark.parametrize(
    ("setting", "other"),
    [("data.copies", 2), ("data.feed", "first_of_node"), ("scheme.overlap", True)],
)
def test_a_setting_that_is_gone_is_left_out_at_the_value_of_todays_code(setting, other, tmp_path):
    today, (group, name) = made_config(scheme=SERVED), setting.split(".")
    same, gone = (
        today.replaced(**{group: {**today.values[group], name: value}})
        for value in (RETIRED[setting], other)
    )
    for config in (same, gone):
        make_record(tmp_path / config.folder, config)
    assert same.key == today.key
    assert read_config(tmp_path / same.folder) == today
    refused(tmp_path / gone.folder, f"of an earlier version, whose setting {setting} is gone")


@pytest.fixture
def record(tmp_path):
    """The folder of a whole record with every number and every table."""
    config = made_config()
    folder = tmp_path / config.folder
    numbers = {each.name: 0.5 for each in NUMBERS if each.unit != "text"}
    make_record(folder, config, servers=1, **numbers)
    (folder / "timeline.csv").write_text("worker,phase,start,end\n0,compute,0.0,0.5\n")
    (folder / "test.csv").write_text(f"images,right\n9,{text_of(bytes(2))}\n")
    return folder


def change(folder, **changes):
    """Give fields of result.json other values; `...` removes one."""
    path = folder / "result.json"
    result = json.loads(path.read_text()) | changes
    kept = {name: value for name, value in result.items() if value is not ...}
    path.write_text(json.dumps(kept, indent=1))


def refused(folder, fault=""):
    found = fault_of(folder)
    assert found is not None
    assert fault in found
    assert "\n" not in found
    assert read_result(folder) is None
    with pytest.raises(SettingError, match=r"^key: the record .* does not fit: "):
        require_fit(folder)


def test_a_record_that_is_mended_or_damaged_is_read_anew(record):
    assert fault_of(record) is None
    assert require_fit(record) == read_result(record)
    change(record, top1=7)
    refused(record, "top1")
    change(record, top1=0.5, lr=0.25)
    assert read_result(record)["lr"] == 0.25
    (record / "curve.csv").write_text("")
    refused(record, "curve.csv")


def test_where_no_record_is_there_is_no_fault(tmp_path):
    nowhere = tmp_path / "runs/made/0123456789ab"
    assert (read_result(nowhere), fault_of(nowhere)) == (None, None)
    with pytest.raises(SettingError, match=r"^key: there is no record in"):
        require_fit(nowhere)


def test_what_earlier_code_or_a_failed_run_lacks_may_be_missing(record):
    needed = ("samples", "seconds", "dropped_samples", "late_steps", "num_parameters")
    change(record, **{each.name: ... for each in NUMBERS if each.name not in needed})
    for name in ("timeline.csv", "test.csv"):
        (record / name).unlink()
    assert fault_of(record) is None
    for name in ("curve", "staleness", "phases"):
        (record / f"{name}.csv").unlink()
        refused(record, f"{name}.csv")
        (record / f"{name}.csv").write_text(f"{','.join(columns(name))}\n")
    for name in needed:
        change(record, **{name: None})
        refused(record, name)
        change(record, **{name: 1})
    for name in ("curve", "staleness", "phases"):
        (record / f"{name}.csv").unlink()
    change(record, status="failed", **dict.fromkeys(needed))
    assert fault_of(record) is None
    change(record, samples=...)
    refused(record, "samples: a record needs it")


@pytest.mark.parametrize(
    ("field", "value"),
    [("started", "2026-01-02T03:04:05"), ("wall_seconds", 1e300)]
    + [(f"hardware.{name}", ...) for name in ("cpu", "cores", "gpus")],
)
def test_what_a_report_cannot_read_is_refused(record, field, value):
    hardware = json.loads((record / "result.json").read_text())["hardware"]
    if name := field.partition(".")[2]:
        change(record, hardware={n: v for n, v in hardware.items() if n != name})
    else:
        change(record, **{field: value})
    refused(record, f"result.json: {field}: ")


def columns(name):
    return next(table.columns for table in POINT_TABLES if table.name == name)


def test_a_loss_is_a_number_below_zero_too(record):
    curve = record / "curve.csv"
    curve.write_text(curve.read_text().replace(",0.5,0.5,0.5,0.5\n", ",-0.5,-0.5,0.5,0.5\n"))
    losses = [each.name for each in NUMBERS if each.unit == "nats"]
    change(record, **dict.fromkeys(losses, -0.5))
    assert fault_of(record) is None
    for name in losses:
        change(record, **{name: "low"})
        refused(record, name)
        change(record, **{name: -0.5})


def test_settings_of_another_point_or_place_are_refused(record):
    config = yaml.safe_load((record / "config.yaml").read_text())
    other = {"_target_": "paceline.data.synthetic.Synthetic", "num_train": 7}
    changes = [("workers", 2), ("seed", 1), ("study", "other"), ("added", 1), ("data", other)]
    for name, value in changes:
        (record / "config.yaml").write_text(yaml.safe_dump(config | {name: value}))
        refused(record)
    (record / "config.yaml").write_text(yaml.safe_dump(config))
    for place in (record.with_name("0" * 12), record.parents[1] / "other" / record.name):
        shutil.copytree(record, place)
        refused(place)


def place(record, content):
    """Put at result.json a file of this content, or what is no file of a usual size."""
    path = record / "result.json"
    path.unlink(missing_ok=True)
    match content:
        case "folder":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
        case "endless":
            path.symlink_to("/dev/zero")
        case "huge":
            path.touch()
            os.truncate(path, 2**28 + 1)
        case _:
            path.write_bytes(content)


def test_a_file_is_read_up_to_its_most_bytes(tmp_path):
    (tmp_path / "four").write_bytes(b"four")
    assert read_foreign(tmp_path / "four", most_bytes=4) == b"four"
    with pytest.raises(UnfitError, match=r"^four: 4 bytes are too many"):
        read_foreign(tmp_path / "four", most_bytes=3)


UNFIT = ["folder", "fifo", "endless", "huge", b"", b'{"key": ', b"[]", b"\xff", b"[" * 100_000]
UNFIT += [b'{"study": 1, "key": NaN, "number": 1e999, "answer": "\\ud800"}']


@pytest.mark.parametrize("content", UNFIT, ids=range(len(UNFIT)))
def test_what_is_no_file_of_values_is_named_whoever_reads_it(record, content):
    """Here the result of a record, and study.json and other files of a report."""
    place(record, content)
    refused(record, "result.json: ")
    (report := record / "report").mkdir()
    place(report, content)
    (report / "result.json").rename(report / "study.json")
    readers = (lambda: read_about(report, "C"), lambda: read_values(report / "study.json", "C"))
    for read in readers:
        with pytest.raises(SettingError) as caught:
            read()
        assert re.fullmatch(
            r"study: .*study\.json is damaged: .{1,320}; restore .* C", str(caught.value)
        )
        assert str(caught.value).isprintable()


STUDY = "twin"


@cache
def whole():
    """The files of a committed record: servers, several workers, a timeline and a test."""
    files = read_archive(REPOSITORY / "reports" / STUDY / ARCHIVE)
    for key, content in files["result.json"].items():
        result = json.loads(content)
        if result["servers"] and result["workers"] > 2 and result["kind"] == "virtual":
            found = {name: by_key[key] for name, by_key in files.items() if key in by_key}
            if found["timeline.csv"].count(b"\n") > 2:
                return found
    raise AssertionError("there is no such record")


KEY = json.loads(whole()["result.json"])["key"]


@settings(max_examples=400, derandomize=True, database=None, deadline=None)
@given(damages(whole()))
def test_any_damage_is_named_or_leaves_a_record_that_can_be_read(damage):
    name, content = damage
    files = {**whole(), name: content}
    if content is None:
        del files[name]
    try:
        result, fault = checked_result(files, STUDY, KEY), ""
    except ValueError as error:
        result, fault = None, str(error)
    if result is None:
        assert re.fullmatch(r"[a-z]+\.(csv|json|yaml): .{1,480}", fault)
        assert fault.isprintable()
        return
    assert result["key"] == KEY
    json.dumps(result, allow_nan=False, ensure_ascii=False).encode()
    for table in POINT_TABLES:
        if content is not None and name == f"{table.name}.csv":
            typed_table(content, numbers_in(table.row))


def config_with(**changes):
    values = yaml.safe_load(whole()["config.yaml"]) | changes
    return {**whole(), "config.yaml": yaml.safe_dump(values).encode()}


def inside(group, **changes):
    return config_with(**{group: yaml.safe_load(whole()["config.yaml"])[group] | changes})


GADGET = {"_target_": "paceline.cluster.child.call_here", "target": "os:system", "arguments": ["x"]}
CODE = {
    "as scheme": lambda: config_with(scheme=GADGET),
    "inside": lambda: inside("scheme", period=GADGET),
    "in a list": lambda: inside("cluster", link=[{"a": GADGET}]),
    "elsewhere": lambda: config_with(question=GADGET),
    "a target that is none": lambda: config_with(data={"_target_": {"_target_": "os.system"}}),
    "an interpolation": lambda: config_with(question="${oc.env:HOME}"),
    "a tag": lambda: {
        **whole(),
        "config.yaml": b"x: !!python/object/apply:os.getpid []\n" + whole()["config.yaml"],
    },
    "a loop": lambda: {**whole(), "config.yaml": b"x: &x {y: *x}\n" + whole()["config.yaml"]},
    "brackets": lambda: {**whole(), "config.yaml": b"[" * 100_000},
}


@pytest.mark.parametrize("kind", CODE)
def test_what_would_run_or_not_end_is_refused(kind):
    with pytest.raises(ValueError, match=r"^config\.yaml: "):
        checked_result(CODE[kind](), STUDY, KEY)


@pytest.mark.parametrize("every", [80, pytest.param(1, marks=pytest.mark.slow)])
def test_all_committed_records_fit(every):
    num_records = 0
    for path in sorted((REPOSITORY / "reports").glob(f"*/{ARCHIVE}")):
        files = read_archive(path)
        study = "quick" if path.parent.name == "example" else path.parent.name
        for key in list(files["result.json"])[::every]:
            record = {name: by_key[key] for name, by_key in files.items() if key in by_key}
            num_records += bool(checked_result(record, study, key))
    assert num_records > 30


IMPORTS = """
import sys
from pathlib import Path
from paceline.record.reading import fault_of
whole, *others = map(Path, sys.argv[1:])
assert fault_of(whole) is None
before = set(sys.modules)
for folder in others:
    fault_of(folder)
assert set(sys.modules) == before, set(sys.modules) - before
"""


def test_reading_a_record_imports_nothing(tmp_path):
    """Not what it names, be it Paceline's, of the standard library or a user's module."""
    names = [
        "paceline.__main__.X",
        "paceline.cluster.child.call_here",
        "paceline.study.submission.run_queued",
        "antigravity.X",
        "this.s",
        "own_model.Network",
        "tests.tiny.TinyNetwork",
    ]
    (tmp_path / "own_model.py").write_text("raise SystemExit(3)")
    records = [whole()]
    for name in names:
        groups = ("data", "scheme", "sweep")
        records += [config_with(**{group: {"_target_": name}}) for group in groups]
        records.append(inside("scheme", more={"_target_": name}))
    folders = [written(tmp_path / str(number), record) for number, record in enumerate(records)]
    command = [sys.executable, "-c", IMPORTS, *map(str, folders)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_record_builds_only_classes_of_its_own_groups(tmp_path):
    """A user's own class can be chosen on the command line, and is not built from a record."""
    values = composed(["cluster=virtual"], REPOSITORY).values
    own = {"_target_": "tests.tiny.TinyNetwork"}
    Point.of(PointConfig(values, of_record=True))
    for group, setting, inner in (
        ("scheme", "scheme._target_", own),
        ("scheme", "scheme.period._target_", {**values["scheme"], "period": own}),
        ("cluster", "cluster.link._target_", {**values["cluster"], "link": own}),
        ("data", "data.augmentation._target_", {**values["data"], "augmentation": own}),
        ("sweep", "sweep._target_", {"_target_": "paceline.record.training.Training"}),
    ):
        with pytest.raises(SettingError) as caught:
            Point.of(PointConfig({**values, group: inner}, of_record=True))
        assert caught.value.setting == setting
    assert all(own_classes(group) for group in GROUPS)
    assert not own_classes("../../src")
    folder = written(tmp_path, config_with(scheme=GADGET))
    with pytest.raises(SettingError, match=r"scheme\._target_: paceline\.cluster\.child"):
        read_config(folder)


def written(root, files):
    folder = root / STUDY / KEY
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder
