"""Which jobs there are, as Slurm tells by its commands; here by scripts in their place."""

import os
import stat
from pathlib import Path

import pytest

from paceline.study.slurm_jobs import ended, last_words, living_jobs, read_jobs, write_jobs


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


def test_a_slurm_that_does_not_answer_is_not_an_empty_queue(says):
    says([], code=1)
    assert living_jobs("quick") is None


def test_the_last_job_of_a_point_is_kept(tmp_path):
    write_jobs(tmp_path, {"a" * 12: "7", "b" * 12: "8_0"})
    write_jobs(tmp_path, {"a" * 12: "9"})
    assert read_jobs(tmp_path) == {"a" * 12: "9", "b" * 12: "8_0"}


def test_a_job_that_has_written_a_points_record_has_it_no_more(tmp_path):
    write_jobs(tmp_path, {"a" * 12: "7"})
    record = tmp_path / ("a" * 12) / "result.json"
    record.parent.mkdir()
    record.touch()
    assert read_jobs(tmp_path) == {}
    os.utime(record, ns=(0, 1))  # from before
    assert read_jobs(tmp_path) == {"a" * 12: "7"}


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
