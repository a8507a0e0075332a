"""Any damage of a record is named, or leaves a record that can be read; and it runs no code."""

import json
import re
import subprocess
import sys
from functools import cache

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.analysis.frames import typed_table
from paceline.errors import SettingError
from paceline.record.archive import ARCHIVE, read_archive
from paceline.record.fields import numbers_in
from paceline.record.point import Point
from paceline.record.point_config import PointConfig
from paceline.record.reading import checked_result, read_config
from paceline.record.rows import POINT_TABLES
from paceline.record.target import GROUPS, own_classes
from paceline.study.compose import composed
from tests.tiny import REPOSITORY

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
WRONG = (None, True, -1, 0.5, float("nan"), float("inf"), 10**30, "x", "\ud800", [], [1], {"a": 1})
CELLS = ("", "x", "-1", "0.5", "nan", "inf", "1e999", '"', "1,2")


@st.composite
def damages(draw):
    """The name of a file, and what is left of its content; None if nothing is."""
    name = draw(st.sampled_from(sorted(whole())))
    content = whole()[name]
    lines, at = content.splitlines(keepends=True), draw(st.integers(0, len(content) - 1))
    line = draw(st.integers(0, len(lines) - 1))
    other = draw(st.integers(0, len(lines) - 1))
    kinds = ["no file", "cut", "no line", "twice", "order", "a byte", "a value", "a value"]
    match draw(st.sampled_from(kinds)):
        case "no file":
            return name, None
        case "cut":
            content = content[:at]
        case "no line":
            content = b"".join([*lines[:line], *lines[line + 1 :]])
        case "twice":
            content = b"".join([*lines[:line], *lines[other:]])
        case "order":
            lines[line], lines[other] = lines[other], lines[line]
            content = b"".join(lines)
        case "a byte":
            content = content[:at] + bytes([draw(st.integers(0, 255))]) + content[at + 1 :]
        case _ if name.endswith(".csv"):
            cells = lines[line].decode().rstrip().split(",")
            cells[draw(st.integers(0, len(cells) - 1))] = draw(st.sampled_from(CELLS))
            lines[line] = f"{','.join(cells)}\n".encode()
            content = b"".join(lines)
        case _:
            values = yaml.safe_load(content)
            inner = values
            while isinstance(inner[name_of := draw(st.sampled_from(sorted(inner)))], dict):
                if not inner[name_of] or draw(st.booleans()):
                    break
                inner = inner[name_of]
            inner[name_of] = draw(st.sampled_from(WRONG))
            dump = json.dumps if name.endswith(".json") else yaml.safe_dump
            content = dump(values).encode()
    return name, content


@settings(max_examples=400, derandomize=True, database=None, deadline=None)
@given(damages())
def test_any_damage_is_named_or_leaves_a_record_that_can_be_read(damage):
    name, content = damage
    files = {other: each for other, each in whole().items() if other != name}
    files |= {name: content} if content is not None else {}
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
    "as data": lambda: config_with(data=GADGET),
    "as cluster": lambda: config_with(cluster=GADGET),
    "inside": lambda: inside("scheme", period=GADGET),
    "in a list": lambda: inside("cluster", link=[{"a": GADGET}]),
    "elsewhere": lambda: config_with(question=GADGET),
    "of another group": lambda: config_with(
        scheme={"_target_": "paceline.model.small_cnn.SmallCNN"}
    ),
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


def written(root, files):
    folder = root / STUDY / KEY
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def test_settings_of_an_invalid_record_are_not_read(tmp_path):
    folder = written(tmp_path, config_with(scheme=GADGET))
    with pytest.raises(SettingError, match=r"scheme\._target_: paceline\.cluster\.child"):
        read_config(folder)


def test_each_group_has_classes():
    assert all(own_classes(group) for group in GROUPS)
    assert not own_classes("../../src")
    assert "torch.optim.sgd.SGD" not in own_classes("scheme")
