"""Records travel in an archive: equal ones in equal bytes, each whole or not at all."""

import io
import json
import lzma
import shutil
import tarfile

import pytest

from paceline.errors import SettingError
from paceline.record.archive import ARCHIVE, unpack_archive, write_archive
from paceline.record.reading import read_result
from paceline.record.record import PartialRecord
from paceline.record.rows import POINT_TABLES
from tests.made_records import made_config, make_record

KEYS = ("0123456789ab", "ba9876543210")
TABLES = [table.name for table in POINT_TABLES]


def record(folder, **changes):
    partial = PartialRecord(folder)
    partial.write_config({"study": "made", "seed": 0})
    for name in TABLES:
        partial.write_table(name, ["a", "b"], [{"a": 0.1, "b": None}])
    for name in ("weights.pt", "mlflow.json", "progress.csv"):
        partial.write_file(name, b"stays")
    partial.complete({"key": folder.name, "top1": 0.1 + 0.2, **changes})


@pytest.fixture
def runs(tmp_path):
    for key in KEYS:
        record(tmp_path / "runs" / key)
    return tmp_path / "runs"


def archived(runs, path):
    write_archive(path, runs.iterdir())
    return path


def content(runs):
    return {
        str(path.relative_to(runs)): path.read_bytes()
        for path in runs.rglob("*")
        if path.is_file() and path.name not in ("weights.pt", "mlflow.json", "progress.csv")
    }


def test_records_come_back_as_they_were_without_weights_and_marker(runs, tmp_path):
    path = archived(runs, tmp_path / ARCHIVE)
    assert unpack_archive(path, tmp_path / "again") == 2
    names = {path.name for path in (tmp_path / "again" / KEYS[0]).iterdir()}
    assert names == {"config.yaml", "result.json", *(f"{name}.csv" for name in TABLES)}
    assert content(tmp_path / "again") == content(runs)
    assert {path.name for path in (tmp_path / "again").iterdir()} == set(KEYS)


def test_equal_records_give_equal_bytes(runs, tmp_path):
    """In any order, of any age, and unpacked."""
    first = archived(runs, tmp_path / "first.tar.xz").read_bytes()
    shutil.copytree(runs, tmp_path / "copied", copy_function=shutil.copyfile)
    write_archive(tmp_path / "second.tar.xz", [tmp_path / "copied" / key for key in reversed(KEYS)])
    assert (tmp_path / "second.tar.xz").read_bytes() == first
    unpack_archive(tmp_path / "first.tar.xz", tmp_path / "again")
    assert archived(tmp_path / "again", tmp_path / "third.tar.xz").read_bytes() == first
    record(runs / KEYS[0], seed=1)
    assert archived(runs, tmp_path / "fourth.tar.xz").read_bytes() != first


def test_a_record_that_is_there_is_not_overwritten(tmp_path):
    configs = [made_config(seed=seed) for seed in (0, 1)]
    folders = [tmp_path / config.folder for config in configs]
    for folder, config in zip(folders, configs, strict=True):
        make_record(folder, config, top1=0.25)
    path = archived(folders[0].parent, tmp_path / ARCHIVE)
    shutil.rmtree(folders[0])
    make_record(folders[0], configs[0], top1=0.5)
    (folders[1] / "curve.csv").write_text("")  # so it is no record
    assert unpack_archive(path, folders[0].parent) == 1
    assert [read_result(folder)["top1"] for folder in folders] == [0.5, 0.25]
    assert unpack_archive(path, folders[0].parent) == 0


def test_a_table_that_a_record_lacks_stays_away(runs, tmp_path):
    (runs / KEYS[0] / "timeline.csv").unlink()
    unpack_archive(archived(runs, tmp_path / ARCHIVE), tmp_path / "again")
    assert not (tmp_path / "again" / KEYS[0] / "timeline.csv").exists()


def refused(path, reason, tmp_path):
    with pytest.raises(SettingError, match=f"^study: .*{ARCHIVE} cannot be read: {reason}") as e:
        unpack_archive(path, tmp_path / "again")
    assert "\n" not in str(e.value)
    assert not (tmp_path / "again").exists()


def test_an_archive_that_was_cut_or_changed_is_named(runs, tmp_path):
    path = archived(runs, tmp_path / ARCHIVE)
    whole = path.read_bytes()
    cut = "Compressed file ended before the end-of-stream marker"
    for content, reason in (
        (whole[: len(whole) // 2], cut),
        (whole[:99] + bytes([whole[99] ^ 1]) + whole[100:], "Corrupt input data"),
        (b"", cut),
        (b"no archive", "Input format not supported"),
        (lzma.compress(b"no archive" * 100), "invalid header"),
    ):
        path.write_bytes(content)
        refused(path, reason, tmp_path)


RESULT = json.dumps({"key": KEYS[0]})


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ([(f"../{KEYS[0]}/config.yaml", "")], r"\.\./.* is not a file of a record"),
        ([(f"{KEYS[0]}/../config.yaml", "")], ".* is not a file of a record"),
        ([(f"{KEYS[0]}/weights.pt", "")], ".* is not a file of a record"),
        ([(f"{KEYS[0]}/config.yaml", "")], "the record .* has no result.json"),
        ([(f"{KEYS[0]}/config.yaml", "")] * 2, ".* occurs twice"),
        ([(f"{KEYS[0]}/result.json", RESULT)], "the record .* has no config.yaml"),
        ([(f"{KEYS[0]}/config.yaml", ""), (f"{KEYS[0]}/result.json", "{")], "Expecting property"),
        ([(f"{KEYS[1]}/config.yaml", ""), (f"{KEYS[1]}/result.json", RESULT)], ".* names the key"),
    ],
)
def test_what_is_no_archive_of_records_is_refused(members, reason, tmp_path):
    write_tar(tmp_path / ARCHIVE, [member(name, text) for name, text in members])
    refused(tmp_path / ARCHIVE, reason, tmp_path)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_only_regular_files_are_taken(kind, tmp_path):
    info, _ = member(f"{KEYS[0]}/config.yaml", "")
    info.type, info.linkname = kind, "/etc/passwd"
    write_tar(tmp_path / ARCHIVE, [(info, b"")])
    refused(tmp_path / ARCHIVE, ".* is not a file of a record", tmp_path)


def test_more_than_memory_bears_is_refused(monkeypatch, runs, tmp_path):
    path = archived(runs, tmp_path / ARCHIVE)
    monkeypatch.setattr("paceline.record.archive._MOST_BYTES", 1000)
    refused(path, "it holds more than 1000 bytes", tmp_path)


def member(name, text):
    info = tarfile.TarInfo(name)
    info.size = len(text)
    return info, text.encode()


def write_tar(path, members):
    with lzma.open(path, "wb") as packed, tarfile.open(fileobj=packed, mode="w") as archive:
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))
