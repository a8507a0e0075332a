"""Whatever is wrong with a record is said in one line that names the file, and imports nothing."""

import base64
import csv
import io
import json
import subprocess
import sys

import pytest
import yaml

from paceline.cluster.cluster import AbstractCluster
from paceline.errors import SettingError
from paceline.record.archive import ARCHIVE, read_archive
from paceline.record.point import Point
from paceline.record.point_config import PointConfig, kind_of
from paceline.record.reading import checked_result, fault_of, read_config
from paceline.record.rows import text_of
from paceline.record.target import GROUPS, Target, own_classes
from paceline.study.compose import composed
from tests.tiny import REPOSITORY

STUDY = "twin"


@pytest.fixture(scope="module")
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


def put(files, **changes):
    result = json.loads(files["result.json"]) | changes
    return {**files, "result.json": json.dumps(result).encode()}


def raw(name, find, insert):
    """Replace a text of a file, which the file has."""

    def change(files):
        assert find in files[name]
        return {**files, name: files[name].replace(find, insert, 1)}

    return change


def field(**changes):
    return lambda files: put(files, **changes)


def nested(name, **changes):
    return lambda files: put(files, **{name: {**json.loads(files["result.json"])[name], **changes}})


def scaled(name, by):
    return lambda files: put(files, **{name: json.loads(files["result.json"])[name] * by})


def cells(table, edit):
    """Edit the rows of a table."""

    def change(files):
        rows = list(csv.DictReader(io.StringIO(files[f"{table}.csv"].decode())))
        columns = list(rows[0])
        edit(rows)
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return {**files, f"{table}.csv": text.getvalue().encode()}

    return change


def cell(table, column, value, row=-1):
    return cells(table, lambda rows: rows[row].update({column: value}))


def settings(**changes):
    def change(files):
        values = yaml.safe_load(files["config.yaml"]) | changes
        return {**files, "config.yaml": yaml.safe_dump(values).encode()}

    return change


def setting(group, **changes):
    def change(files):
        values = yaml.safe_load(files["config.yaml"])
        values[group] |= changes
        return {**files, "config.yaml": yaml.safe_dump(values).encode()}

    return change


def replaced(name, content):
    return lambda files: {**files, name: content}


def swapped(rows):
    rows[0], rows[1] = rows[1], rows[0]


def again(rows):
    rows.append(dict(rows[-1]))


GADGET = {"_target_": "paceline.cluster.child.call_here", "target": "os:system", "arguments": ["x"]}
FEW = {"_target_": "paceline.cluster.local.LocalCluster"}
ROWS = b"0,1,1\n" * 2**18
KINDS = {
    # texts and numbers that tables and pages cannot have
    "half of a pair in reason": field(reason="\ud800"),
    "half of a pair in certificate": field(certificate="\udfff"),
    "half of a pair in a name": nested("versions", **{"\ud800": "1"}),
    "an escape": field(reason="\x1b[2J"),
    "a zero byte": field(commit="\0"),
    "cores of 1e400": raw("result.json", b'"cores": ', b'"cores": 1e400, "x": '),
    "cores of NaN": raw("result.json", b'"cores": ', b'"cores": NaN, "x": '),
    "cores of 1e308": nested("hardware", cores=1e308),
    "no core": nested("hardware", cores=0),
    "memory in words": nested("hardware", memory_bytes="much"),
    "processors that nest": nested("hardware", gpus=[[["a"]]]),
    "a package without a name": nested("versions", **{"a,b\n": "1"}),
    "more than 64 bits": field(samples=10**30),
    "5,000 digits": raw("result.json", b'"samples": ', b'"samples": 1' + b"0" * 5000 + b', "x": '),
    "lost workers that are no list": field(lost_workers=5),
    "lost workers of anything": field(lost_workers=[1, 2]),
    "deeply nested": field(lost_workers=[{"a": json.loads("[" * 50 + "]" * 50)}]),
    "a script as scheme": lambda files: setting("names", scheme="<script>")(
        put(files, scheme="<script>")
    ),
    "a field of a setting": field(**{"scheme.period": 99}),
    "a byte order mark": lambda files: {
        **files,
        "result.json": b"\xef\xbb\xbf" + files["result.json"],
    },
    # numbers that no run has
    "images/s of 1e308": field(images_per_second=1e308),
    "images/s of 5e-324": field(images_per_second=5e-324),
    "no images/s": field(images_per_second=0),
    "real images/s of 1e300": field(real_images_per_second=1e300),
    "seconds of 1e300": field(seconds=1e300, updates_per_second=None),
    "updates/s": scaled("updates_per_second", 2),
    "bytes of 1e300": field(shuffle_bytes=1e300),
    # cells
    "6_4": cell("curve", "samples", "6_4", 0),
    "a space": cell("curve", "samples", " 64", 0),
    "a sign": cell("curve", "updates", "+1", 0),
    "digits of another script": cell("curve", "updates", "\u0661", 0),
    "a fraction with _": cell("curve", "top1", "0.5_0"),
    "hexadecimal": cell("phases", "bytes_sent", "0x10"),
    "a worker as a fraction": cell("phases", "worker", "1.0"),
    "true": cell("curve", "top5", "true"),
    "a cell of 30 digits": cell("phases", "bytes_sent", "1" + "0" * 30),
    "a table with a byte order mark": lambda files: {
        **files,
        "curve.csv": b"\xef\xbb\xbf" + files["curve.csv"],
    },
    # the curve
    "samples beyond the budget": cell("curve", "samples", "99999999"),
    "another last top-1": cell("curve", "top1", "0.01"),
    "another last top-5": cell("curve", "top5", "0.01"),
    "another last loss": cell("curve", "validation_loss", "0.01"),
    "another last training loss": cell("curve", "train_loss", "0.01"),
    "another top-1 in the result": field(top1=0.99),
    "a lower loss in the result": field(validation_loss=0.01),
    "seconds that fall": cell("curve", "seconds", "0.0001"),
    "real seconds that fall": cell("curve", "real_seconds", "0.0001"),
    "updates that fall": cell("curve", "updates", "0"),
    "rows in another order": cells("curve", swapped),
    "a row twice": cells("curve", again),
    "a row that is missing": cells("curve", lambda rows: rows.pop()),
    # the other tables
    "phases of worker 99": cell("phases", "worker", "99"),
    "phases of a worker twice": cell("phases", "worker", "0"),
    "no phases of a worker": cells("phases", lambda rows: rows.pop()),
    "steps of other samples": cell("phases", "steps", "1"),
    "other bytes": cell("phases", "bytes_sent", "1"),
    "other bytes in the result": scaled("bytes_received", 2),
    "staleness of server 99": cell("staleness", "server", "99"),
    "a staleness twice": cells("staleness", again),
    "more pushes": cell("staleness", "pushes", "99999"),
    "another mean staleness": scaled("staleness_mean", 0.5),
    "another largest staleness": field(staleness_max=99),
    "another share": scaled("stale_share", 0.5),
    "a span of worker 99": cell("timeline", "worker", "99"),
    "a span that ends before": cell("timeline", "start", "99999999"),
    "other right images": lambda files: cell(
        "test", "right", text_of(bytes(len(base64.b64decode("")) + _packed(files)))
    )(files),
    "two rows of a test": cells("test", again),
    "another test top-1": field(test_top1=0.99),
    "other test images": field(test_images=7),
    "a bomb of right images": lambda files: cell("test", "right", text_of(bytes(10**7)))(files),
    "a bomb of rows": lambda files: {**files, "staleness.csv": files["staleness.csv"] + ROWS},
    # kinds and settings
    "measured in a virtual study": field(kind="measured"),
    "paced in a virtual study": field(kind="paced"),
    "another cluster": settings(cluster=FEW),
    "a setting twice": raw("config.yaml", b"seed:", b"seed: 7\nseed:"),
    "an alias": raw("config.yaml", b"study:", b"x: &x [1]\ny: *x\nstudy:"),
    "a tag": raw("config.yaml", b"study:", b"x: !!python/object/apply:os.getpid []\nstudy:"),
    "a date": raw("config.yaml", b"study:", b"x: 2026-01-01\nstudy:"),
    "two documents": raw("config.yaml", b"study:", b"---\nstudy:"),
    "an interpolation": settings(question="${oc.env:HOME}"),
    "100,000 brackets": replaced("config.yaml", b"[" * 100_000),
    "100,000 dashes": replaced("config.yaml", b"- " * 100_000),
    "names that nest": replaced("config.yaml", b"? " * 100_000),
    "nothing": replaced("config.yaml", b""),
    "a gadget as scheme": settings(scheme=GADGET),
    "a gadget as data": settings(data=GADGET),
    "a gadget as cluster": settings(cluster=GADGET),
    "a gadget inside": setting("scheme", period=GADGET),
    "a gadget in a list": setting("cluster", link=[{"a": GADGET}]),
    "a gadget as workload": settings(workload=GADGET),
    "a gadget elsewhere": settings(question=GADGET),
    "a class of another group": settings(scheme={"_target_": "paceline.model.small_cnn.SmallCNN"}),
    "the command line": settings(data={"_target_": "paceline.__main__.X"}),
    "a target that is none": settings(data={"_target_": {"_target_": "os.system"}}),
}


def _packed(files):
    row = next(csv.DictReader(io.StringIO(files["test.csv"].decode())))
    return (int(row["images"]) + 7) // 8


def key_of(files):
    return json.loads(files["result.json"])["key"]


def test_a_whole_record_fits(whole):
    assert checked_result(whole, STUDY, key_of(whole))["key"] == key_of(whole)


def test_a_bad_record_is_named_in_one_line(whole, tmp_path):
    for number, (kind, damaged) in enumerate(KINDS.items()):
        files = damaged(whole)
        folder = tmp_path / str(number) / STUDY / key_of(whole)
        folder.mkdir(parents=True)
        for name, content in files.items():
            (folder / name).write_bytes(content)
        fault = fault_of(folder)
        assert fault is not None, kind
        assert fault.isprintable(), kind
        assert fault.split(": ")[0] in files, kind
        assert len(fault) < 500, kind
        with pytest.raises(ValueError, match=r"^[a-z]+\.[a-z]+: "):
            checked_result(files, STUDY, key_of(whole))


def test_all_committed_records_fit():
    num_records = 0
    for path in sorted((REPOSITORY / "reports").glob(f"*/{ARCHIVE}")):
        files = read_archive(path)
        study = "quick" if path.parent.name == "example" else path.parent.name
        for key in list(files["result.json"])[::80]:
            record = {name: by_key[key] for name, by_key in files.items() if key in by_key}
            num_records += bool(checked_result(record, study, key))
    assert num_records > 30


@pytest.mark.slow
def test_all_of_them_fit():
    for path in sorted((REPOSITORY / "reports").glob(f"*/{ARCHIVE}")):
        files = read_archive(path)
        study = "quick" if path.parent.name == "example" else path.parent.name
        for key in files["result.json"]:
            record = {name: by_key[key] for name, by_key in files.items() if key in by_key}
            checked_result(record, study, key)


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


def test_reading_a_record_imports_nothing(whole, tmp_path):
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
    changes = [lambda files: files]
    for name in names:
        changes += [
            settings(**{group: {"_target_": name}}) for group in ("data", "scheme", "sweep")
        ]
        changes.append(setting("scheme", more={"_target_": name}))
    folders = []
    for number, change in enumerate(changes):
        folders.append(tmp_path / str(number) / STUDY / key_of(whole))
        folders[-1].mkdir(parents=True)
        for name, content in change(whole).items():
            (folders[-1] / name).write_bytes(content)
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


def test_settings_of_an_invalid_record_are_not_read(whole, tmp_path):
    folder = tmp_path / STUDY / key_of(whole)
    folder.mkdir(parents=True)
    for name, content in KINDS["a gadget as scheme"](whole).items():
        (folder / name).write_bytes(content)
    with pytest.raises(SettingError, match=r"scheme\._target_: paceline\.cluster\.child"):
        read_config(folder)


def test_each_group_has_classes():
    assert all(own_classes(group) for group in GROUPS)
    assert not own_classes("../../src")
    assert "torch.optim.sgd.SGD" not in own_classes("scheme")


def test_kinds_are_those_of_the_clusters():
    files = sorted((REPOSITORY / "conf/cluster").glob("*.yaml"))
    paced = [("local", {"step_seconds": 1.0}), ("local", {"server_seconds": 1.0})]
    for name, changes in [*((path.stem, {}) for path in files), *paced]:
        values = {**composed([f"cluster={name}"], REPOSITORY).values["cluster"], **changes}
        assert kind_of(values) == Target("cluster", values).build_as(AbstractCluster).kind
