"""Records travel in an archive: equal ones in equal bytes, each whole or not at all."""

import shutil
import sys

import pytest

from paceline.record.archive import ARCHIVE, missing_records, write_archive, write_records
from paceline.record.reading import read_result
from paceline.record.record import PartialRecord
from tests.made_records import TABLES, made_config, make_record

CONFIGS = [made_config(seed=seed) for seed in (0, 1)]
KEYS = [config.key for config in CONFIGS]


@pytest.fixture
def runs(tmp_path):
    """Two records of the study `made`, with files that do not belong into an archive."""
    for config in CONFIGS:
        folder = tmp_path / config.folder
        make_record(folder, config, top1=0.1 + 0.2)
        for name in ("timeline", "test"):
            (folder / f"{name}.csv").write_text(TABLES[name])
        for name in ("weights.pt", "progress.csv"):
            (folder / name).write_bytes(b"stays")
    return tmp_path / "runs/made"


def archived(runs, path):
    write_archive(path, runs.iterdir())
    return path


def unpack_archive(path, runs):
    missing = missing_records(path, runs)
    write_records(missing, runs)
    return len(missing)


def content(runs):
    return {
        str(path.relative_to(runs)): path.read_bytes()
        for path in runs.rglob("*")
        if path.is_file() and path.name not in ("weights.pt", "progress.csv")
    }


def test_records_come_back_as_they_were_without_weights(runs, tmp_path):
    path = archived(runs, tmp_path / ARCHIVE)
    assert unpack_archive(path, tmp_path / "again/made") == 2
    names = {path.name for path in (tmp_path / "again/made" / KEYS[0]).iterdir()}
    assert names == {"config.yaml", "result.json", *(f"{name}.csv" for name in TABLES)}
    assert content(tmp_path / "again/made") == content(runs)
    assert {path.name for path in (tmp_path / "again/made").iterdir()} == set(KEYS)


def test_equal_records_give_equal_bytes(runs, tmp_path):
    """In any order, of any age, and unpacked."""
    first = archived(runs, tmp_path / "first.tar.xz").read_bytes()
    shutil.copytree(runs, tmp_path / "copied", copy_function=shutil.copyfile)
    write_archive(tmp_path / "second.tar.xz", [tmp_path / "copied" / key for key in reversed(KEYS)])
    assert (tmp_path / "second.tar.xz").read_bytes() == first
    unpack_archive(tmp_path / "first.tar.xz", tmp_path / "again/made")
    assert archived(tmp_path / "again/made", tmp_path / "third.tar.xz").read_bytes() == first
    (runs / KEYS[0] / "test.csv").unlink()
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


def test_a_copy_that_is_cut_short_is_no_record(runs, tmp_path, monkeypatch):
    missing = missing_records(archived(runs, tmp_path / ARCHIVE), tmp_path / "again/made")
    copied = PartialRecord(tmp_path / "copied" / KEYS[0])
    copied.copy_files(runs / KEYS[0], [])
    monkeypatch.setattr(PartialRecord, "complete", lambda *_: sys.exit())
    with pytest.raises(SystemExit):
        write_records(missing, tmp_path / "again/made")
    copied.discard()
    assert not [*(tmp_path / "copied").iterdir(), *(tmp_path / "again/made").iterdir()]


def test_a_table_that_a_record_lacks_stays_away(runs, tmp_path):
    (runs / KEYS[0] / "timeline.csv").unlink()
    unpack_archive(archived(runs, tmp_path / ARCHIVE), tmp_path / "again/made")
    assert not (tmp_path / "again/made" / KEYS[0] / "timeline.csv").exists()
