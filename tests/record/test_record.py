"""An attempt appears whole or not at all, beside those before it, and the right one counts."""

import errno
import itertools
import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from paceline.errors import SettingError
from paceline.record.checkpoint import has_checkpoint
from paceline.record.reading import chosen_attempt, fault_of, latest_result, read_alone, read_result
from paceline.record.record import (
    PartialRecord,
    is_under_way,
    partial_folder,
    partial_records,
    records_in,
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
    return partial.complete(result)


def test_a_complete_attempt_is_in_its_record_and_nothing_else(tmp_path):
    record = tmp_path / "runs/study/0123456789ab"
    folder = made(record, {"status": "finished", "top1": 0.5})
    assert (list(record.parent.iterdir()), list(record.iterdir())) == ([record], [folder])
    assert result_of(folder) == {"status": "finished", "top1": 0.5}
    written = (folder / "config.yaml").read_text()
    assert written == "workers: 2\nnames:\n  data: synthetic\n"
    row = "64,2,0.5,1.25,,0.5,1.0,0.5,"
    assert (folder / "curve.csv").read_text() == ",".join(CURVE) + f"\n{row}\n"


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


STATUSES = ["finished", "diverged", "failed", "invalid"]


def attempt(record, config, status, **changes):
    """Add an attempt to a record; its checkpoint is at a later start if it failed."""
    partial = PartialRecord(record)
    made_folder = partial.folder.with_name("made")
    make_record(made_folder, config, key=config.key, status=status, **changes)
    files = {path.name: path.read_bytes() for path in made_folder.iterdir()}
    for name, content in files.items():
        partial.write_file(name, content)
    (partial.folder / "checkpoint/1").mkdir(parents=True, exist_ok=True)
    (partial.folder / "checkpoint/1/complete.json").touch()
    shutil.rmtree(made_folder)
    return partial.complete(json.loads(files["result.json"]))


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("statuses", list(itertools.product(STATUSES, repeat=2)))
def test_nothing_replaces_an_attempt_and_the_latest_success_counts(statuses, legacy, tmp_path):
    """Else the latest failure does; also beside a record of earlier code, without attempts."""
    config = made_config()
    record = tmp_path / config.folder
    for number, status in enumerate(statuses):
        if legacy and number == 0:
            make_record(record, config, status=status, top1=0)
        else:
            attempt(record, config, status, top1=number / 10)
    folders = [record, record / "1", record / "2"][not legacy :][:2]
    results = [result_of(folder) for folder in folders]
    assert [(each["status"], each["top1"]) for each in results] == [
        (status, number / 10) for number, status in enumerate(statuses)
    ]
    valid = [n for n in range(2) if statuses[n] != "invalid"]
    counted = max(valid, key=lambda n: (statuses[n] != "failed", n), default=None)
    assert records_in(record.parent) == [record]
    for read in (read_result, read_alone):
        assert read(record) == (None if counted is None else results[counted])
    assert (fault_of(record) is None) == bool(valid)
    assert latest_result(record) == (results[1] if statuses[1] != "invalid" else None)
    if counted is not None:
        assert chosen_attempt(record) == folders[counted]
    assert has_checkpoint(PartialRecord(record).folder) == (statuses[1] == "failed")


@pytest.mark.parametrize("end", [SystemExit(), OSError(errno.EBUSY, os.strerror(errno.EBUSY))])
def test_a_complete_attempt_is_put_in_its_record_later(end, tmp_path, monkeypatch):
    """If the process ended, or the disk refused."""

    def rename(path, to):
        if path == partial.folder:
            raise end
        return moved(path, to)

    record, moved = tmp_path / "0123456789ab", Path.rename
    made(record, {"status": "failed"})
    partial = PartialRecord(record)
    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises((SystemExit, SettingError)):
        partial.complete({"status": "finished"})
    monkeypatch.undo()
    partial.discard()
    PartialRecord(record).discard()
    assert [result_of(record / name)["status"] for name in "12"] == ["failed", "finished"]
    assert list(tmp_path.iterdir()) == [record]


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
