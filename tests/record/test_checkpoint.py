"""Checkpoints in the folder of a partial record: which count, and which are left with a reason."""

import io
import json
import os
import shutil
from functools import partial

import pytest
import torch

from paceline.errors import SettingError
from paceline.record import checkpoint
from paceline.record.checkpoint import CHECKPOINTS, complete, folder_of, has_checkpoint
from paceline.record.record import PartialRecord
from paceline.run.run_point import require_plain

KEY = "0123456789ab"
begin = partial(checkpoint.begin, check=require_plain, data="of then")


def saved(state):
    file = io.BytesIO()
    torch.save(state, file)
    return file.getvalue()


STATE = saved({"weights": torch.ones(2), "pushes": [(0, 1)]})


def write(record, number, names=("worker_0", "server_0"), content=STATE):
    folder_of(record, number).mkdir(parents=True)
    for name in names:
        (folder_of(record, number) / f"{name}.ckpt").write_bytes(content)


@pytest.fixture
def record(tmp_path):
    """A partial record with two checkpoints, of which the second is not complete."""
    assert begin(tmp_path, KEY) is None
    write(tmp_path, 1)
    complete(tmp_path, 1, samples=640, resumes=2)
    write(tmp_path, 2, names=["worker_0"])
    return tmp_path


def test_the_latest_complete_one_counts(record):
    shutil.copytree(folder_of(record, 1), folder_of(record, 1).with_name("last"))
    found = begin(record, KEY)
    assert (found.number, found.samples, found.resumes) == (1, 640, 2)
    assert found.sizes == {"worker_0.ckpt": len(STATE), "server_0.ckpt": len(STATE)}
    complete(record, 2, samples=960, resumes=2)  # and takes the place of those before
    assert [path.name for path in (record / CHECKPOINTS).glob("[0-9]*")] == ["2"]
    assert begin(record, KEY).samples == 960


def test_one_that_is_replaced_while_it_is_looked_for_is_passed_over(record, monkeypatch):
    """By a run that still goes on, as one whose nodes Slurm takes."""
    listed = checkpoint._complete_folders

    def late(folder):
        found = listed(folder)
        if found[-1].name == "1":
            complete(folder, 2, samples=960, resumes=2)
        return found

    monkeypatch.setattr(checkpoint, "_complete_folders", late)
    assert checkpoint.latest(record).samples == 960


SAID = '{"number": %s, "samples": 640, "resumes": 2, "sizes": %s}'
SPOILT = [
    ("server_0.ckpt", "st", "server_0.ckpt is incomplete"),
    ("server_0.ckpt", None, "server_0.ckpt is incomplete"),
    ("complete.json", '{"number"', "complete.json is damaged"),
    ("complete.json", SAID % (1, 5), "complete.json is damaged"),
    ("complete.json", SAID % (2, "{}"), "complete.json is that of another checkpoint, 2"),
    ("complete.json", None, "it is incomplete"),
]


@pytest.mark.parametrize(("name", "content", "reason"), SPOILT)
def test_what_is_not_whole_is_left_with_a_reason(name, content, reason, record):
    path = folder_of(record, 1) / name
    path.unlink() if content is None else path.write_text(content)
    with pytest.raises(ValueError, match=reason):
        begin(record, KEY)
    assert begin(record, KEY) is None


class Runs:
    def __init__(self, path):
        self._path = path

    def __reduce__(self):
        return os.mkdir, (str(self._path),)


def test_only_tensors_and_plain_values_count_and_nothing_runs(tmp_path):
    ran = tmp_path / "ran"
    for content, reason in (
        (saved({"served": Runs(ran)}), "server_0.ckpt holds posix.mkdir, and not only tensors"),
        (b"state", "server_0.ckpt is not a file of torch"),
    ):
        begin(tmp_path, KEY)
        write(tmp_path, 1, ["server_0"], content)
        complete(tmp_path, 1, samples=640, resumes=0)
        with pytest.raises(ValueError, match=reason):
            begin(tmp_path, KEY)
        assert not has_checkpoint(tmp_path)
    assert not ran.exists()


def test_of_another_user_it_is_refused_until_it_is_copied(record, monkeypatch):
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    with pytest.raises(SettingError, match="belongs to another user; copy"):
        begin(record, KEY)
    monkeypatch.undo()
    assert begin(record, KEY).number == 1  # nothing was lost


def test_of_another_point_data_or_other_code_it_is_left_with_a_reason(record, monkeypatch):
    for known in ("of then", None, "of then"):  # what a run itself downloads is not known
        assert begin(record, KEY, data=known).number == 1
    origin = record / CHECKPOINTS / "origin.json"
    written = origin.read_text()
    monkeypatch.setattr(checkpoint, "source_digest", lambda: "fedcba987654")
    with pytest.raises(ValueError, match="with a different code"):
        begin(record, KEY)
    assert not has_checkpoint(record)
    write(record, 1)
    complete(record, 1, samples=640, resumes=0)
    origin.write_text(json.dumps({**json.loads(written), "key": "another"}))
    with pytest.raises(ValueError, match="it belongs to another point, another"):
        begin(record, KEY)
    write(record, 1)
    complete(record, 1, samples=640, resumes=0)
    with pytest.raises(ValueError, match="with a different content of the data"):
        begin(record, KEY, data="of now")


@pytest.mark.parametrize("failed", [False, True])
def test_a_point_that_is_begun_again_has_the_checkpoint_of_the_one_before(failed, tmp_path):
    final = tmp_path / KEY
    incomplete = PartialRecord(final)
    begin(incomplete.folder, KEY)
    write(incomplete.folder, 1)
    incomplete.discard()
    assert not incomplete.folder.exists()
    first = PartialRecord(final)
    begin(first.folder, KEY)
    write(first.folder, 3)
    complete(first.folder, 3, samples=640, resumes=0)
    first.write_file("progress.csv", b"")
    first.complete({"status": "failed"}) if failed else first.discard()
    again = PartialRecord(final)
    assert [path.name for path in again.folder.iterdir()] == [CHECKPOINTS]
    assert begin(again.folder, KEY).number == 3
    again.complete({"status": "finished"})
    assert not (final / CHECKPOINTS).exists()
