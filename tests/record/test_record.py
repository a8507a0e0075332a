"""A record appears whole or not at all."""

import errno
import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from paceline.errors import SettingError
from paceline.record.checkpoint import has_checkpoint
from paceline.record.record import (
    PartialRecord,
    is_under_way,
    partial_folder,
    partial_records,
)
from paceline.record.rows import POINT_TABLES
from tests.made_records import made_config, make_record

CURVE = POINT_TABLES[0].columns
ROW = dict(zip(CURVE, (64, 2, 0.5, 1.25, None, 0.5, 1.0, 0.5, None), strict=True))


def result_of(folder):
    return json.loads((folder / "result.json").read_text())


def made(folder, result):
    partial = PartialRecord(folder)
    partial.write_config({"workers": 2, "names": {"data": "synthetic"}})
    partial.write_table("curve", CURVE, [ROW])
    assert not folder.exists() or (folder / "old").exists()
    partial.complete(result)


def test_a_complete_record_is_in_its_place_and_nothing_else(tmp_path):
    folder = tmp_path / "runs/study/0123456789ab"
    assert not folder.exists()
    made(folder, {"status": "finished", "top1": 0.5})
    assert list(folder.parent.iterdir()) == [folder]
    assert result_of(folder) == {"status": "finished", "top1": 0.5}
    written = (folder / "config.yaml").read_text()
    assert written == "workers: 2\nnames:\n  data: synthetic\n"
    row = "64,2,0.5,1.25,,0.5,1.0,0.5,"
    assert (folder / "curve.csv").read_text() == ",".join(CURVE) + f"\n{row}\n"


def test_an_older_record_is_replaced_as_a_whole(tmp_path):
    folder = older_one(tmp_path)
    made(folder, {"status": "finished"})
    assert not (folder / "old").exists()
    assert result_of(folder) == {"status": "finished"}


def test_what_is_in_the_making_is_hidden_and_can_be_discarded(tmp_path):
    partial = PartialRecord(tmp_path / "0123456789ab")
    assert partial.folder == tmp_path / ".0123456789ab.partial"
    assert list(partial_records(tmp_path)) == [("0123456789ab", partial.folder)]
    assert is_under_way(partial.folder)
    partial.discard()
    assert list(tmp_path.iterdir()) == []


def test_a_record_is_made_by_one_process_at_a_time(tmp_path):
    folder = tmp_path / "0123456789ab"
    with killed(folder) as owner:
        with pytest.raises(
            SettingError, match=r"^study: another process is making the record /.*ab$"
        ):
            PartialRecord(folder)
        partial = partial_folder(folder)
        assert (partial / "config.yaml").exists()
        assert is_under_way(partial)
        owner.kill()
        owner.wait()
        assert not is_under_way(partial)
    assert not (PartialRecord(folder).folder / "config.yaml").exists()


@contextmanager
def killed(folder):
    """A process that has begun the record; it is dead afterwards."""
    code = (
        "import sys; from pathlib import Path; from paceline.record.record import PartialRecord;"
        "partial = PartialRecord(Path(sys.argv[1])); partial.write_config({});"
        "print('begun', flush=True); sys.stdin.read()"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code, str(folder)], **pipes) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "begun\n"
        try:
            yield owner
        finally:
            owner.kill()


@pytest.mark.parametrize("new", ["finished", "diverged", "failed"])
@pytest.mark.parametrize("old", ["finished", "diverged", "failed", "invalid", None])
def test_a_failure_never_replaces_a_success(old, new, tmp_path, capsys):
    """It leaves its checkpoint to the next run in any case."""
    config = made_config()
    folder = tmp_path / config.folder
    if old:
        make_record(folder, config, status=old)
    partial = PartialRecord(folder)
    (partial.folder / "checkpoint/1").mkdir(parents=True)
    (partial.folder / "checkpoint/1/complete.json").touch()
    partial.complete({"status": new})
    stays = new == "failed" and old in ("finished", "diverged")
    assert result_of(folder)["status"] == (old if stays else new)
    assert (folder / "curve.csv").exists() == stays
    assert len(capsys.readouterr().err.splitlines()) == stays
    assert has_checkpoint(PartialRecord(folder).folder) == (new == "failed")


def older_one(tmp_path):
    """The folder of a record, to be replaced."""
    folder = tmp_path / "0123456789ab"
    made(folder, {"status": "failed"})
    (folder / "old").touch()
    return folder


@pytest.mark.parametrize("end", [SystemExit(), OSError(errno.EBUSY, os.strerror(errno.EBUSY))])
def test_a_whole_record_is_put_in_its_place_later(end, tmp_path, monkeypatch):
    """If the process ended, or the disk refused, after the older one was removed."""

    def rename(path, to):
        if path == partial.folder:
            raise end
        return moved(path, to)

    folder, moved = older_one(tmp_path), Path.rename
    partial = PartialRecord(folder)
    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises((SystemExit, SettingError)):
        partial.complete({"status": "finished"})
    monkeypatch.undo()
    partial.discard()
    PartialRecord(folder).discard()
    assert result_of(folder) == {"status": "finished"}
    assert list(tmp_path.iterdir()) == [folder]


def test_an_older_record_outlives_a_disk_that_fills_up(tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    folder = older_one(tmp_path)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SettingError, match=r"^study: cannot write .*: No space left on device$"):
        made(folder, {"status": "finished"})
    assert list(tmp_path.iterdir()) == [folder]
    assert result_of(folder) == {"status": "failed"}


def test_a_number_that_json_lacks_leaves_no_record(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        made(tmp_path / "0123456789ab", {"top1": float("nan")})
    assert not (tmp_path / "0123456789ab").exists()


@pytest.mark.parametrize("rows", [0, 100_000])
def test_a_full_disk_leaves_nothing(rows, small_disk):
    """Full from the start, or in the middle of a table."""
    taken = small_disk / "taken"
    taken.write_bytes(bytes(16384 if rows else 65536))
    with pytest.raises(SettingError, match=r"^study: cannot write .*: No space left on device$"):
        PartialRecord(small_disk / "0123456789ab").write_table("curve", CURVE, [ROW] * (rows or 1))
    assert list(small_disk.iterdir()) == [taken]


def test_a_folder_that_is_a_file_names_the_study(tmp_path):
    (tmp_path / "study").touch()
    with pytest.raises(SettingError, match=r"^study: cannot write the record"):
        PartialRecord(tmp_path / "study/0123456789ab")
