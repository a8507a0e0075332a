"""The jobs of a study in a queue, by scripts in place of Slurm's commands, and what a job runs."""

import json
import os
import signal
import stat
import sys
from pathlib import Path

import pytest

from paceline.errors import SettingError
from paceline.record.provenance import source_digest
from paceline.record.reading import record_version
from paceline.study.compose import composed
from paceline.study.slurm_jobs import (
    PointJob,
    ended,
    last_words,
    living_jobs,
    log_folder,
    private_folder,
    read_jobs,
    write_jobs,
)
from tests.tiny import CONF

SMALL = [
    "data=synthetic",
    "data.num_train=48",
    "data.num_validation=24",
    "data.num_test=24",
    "training.samples=96",
    "batch_size=8",
]


@pytest.fixture
def says(tmp_path, monkeypatch):
    """Function that decides what squeue prints, and its exit code."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("paceline.study.slurm_jobs._ROUND_SECONDS", 0)

    def decide(lines, code=0):
        script = tmp_path / "squeue"
        text = "\n".join(lines)
        script.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\nexit {code}\n")
        script.chmod(script.stat().st_mode | stat.S_IEXEC)

    return decide


def test_jobs_of_another_folder_are_not_ours(says):
    says([f"7|None|{Path.cwd()}", f"8_1|Priority|{Path.cwd()}  ", "9|None|/elsewhere"])
    assert living_jobs("quick") == {"7": "None", "8_1": "Priority"}
    says([], code=1)  # which is not an empty queue
    assert living_jobs("quick") is None


def test_the_last_job_of_a_point_is_kept_until_it_has_written_its_record(tmp_path):
    write_jobs(tmp_path, {"a" * 12: "7", "b" * 12: "8_0"})
    write_jobs(tmp_path, {"a" * 12: "9"})
    assert read_jobs(tmp_path) == {"a" * 12: "9", "b" * 12: "8_0"}
    record = tmp_path / ("a" * 12) / "result.json"
    record.parent.mkdir()
    record.touch()
    assert read_jobs(tmp_path) == {"b" * 12: "8_0"}
    os.utime(record, ns=(0, 1))  # from before
    assert read_jobs(tmp_path) == {"a" * 12: "9", "b" * 12: "8_0"}


def test_a_point_ends_with_its_record_or_when_its_job_is_gone(says, monkeypatch, capsys):
    monkeypatch.setattr("paceline.study.slurm_jobs._GRACE_SECONDS", 0)
    says([f"7|PartitionTimeLimit|{Path.cwd()}"])
    recorded = set()
    points = ended("quick", {"a": "7", "b": "8", "c": "7"}, recorded.__contains__)
    assert next(points) == "b"  # 8 is not in the queue
    recorded.add("c")
    assert next(points) == "c"
    says([], code=1)  # which is no reason to give a point up
    recorded.add("a")
    assert list(points) == ["a"]
    assert capsys.readouterr().err == "paceline: job 7 waits: PartitionTimeLimit\n"


def test_last_words_are_the_last_line_that_says_something(tmp_path):
    log = tmp_path / "log"
    assert last_words(log) == ""
    log.write_text("one\ntwo \n\n")
    assert last_words(log) == "two"


def test_nobody_else_can_write_where_jobs_read_code(tmp_path, monkeypatch):
    log_folder(tmp_path).mkdir(mode=0o777)
    log_folder(tmp_path).chmod(0o777)
    (log_folder(tmp_path) / "7_0_log.out").touch()
    assert private_folder(tmp_path).stat().st_mode & 0o777 == 0o700
    me = os.geteuid()
    with monkeypatch.context() as other:
        other.setattr(os, "geteuid", lambda: me + 1)
        with pytest.raises(SettingError, match=r"^cluster: .*belongs to another user"):
            private_folder(tmp_path)
    log_folder(tmp_path).rename(tmp_path / "theirs")
    log_folder(tmp_path).symlink_to("theirs")
    with pytest.raises(SettingError, match=r"^cluster: "):
        private_folder(tmp_path)


@pytest.fixture
def own_process(monkeypatch):
    """What a job changes in its process is put back."""
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def configs(tmp_path, monkeypatch):
    """Two points of a project in the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf").symlink_to(CONF)
    return tuple(composed([*SMALL, f"seed={seed}"], tmp_path) for seed in (0, 1))


@pytest.mark.usefixtures("own_process")
def test_a_job_runs_what_has_not_run_and_logs_nothing(configs, tmp_path, capfd):
    """Called again it runs nothing: as after its allocation was taken away. Nor does other code."""
    with pytest.raises(SettingError, match=r"^cluster: the code has changed since this was queued"):
        PointJob(configs, (None, None), "other", tmp_path)()
    assert not (tmp_path / "runs").exists()
    first, second = configs
    made = first.folder
    made.mkdir(parents=True)
    (made / "result.json").write_text(json.dumps({"status": "finished"}))
    todo = PointJob(configs, (None, None), source_digest(), tmp_path)
    todo()
    assert record_version(second.folder) is not None
    assert f"{first.key}: has run before" in capfd.readouterr().out
    todo()
    told = capfd.readouterr().out
    assert [f"{each.key}: has run before" in told for each in configs] == [True, True]
    assert not list(tmp_path.rglob("*.db"))
