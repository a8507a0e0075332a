"""Where a number comes from is told without importing anything slow."""

import os
import subprocess
import sys

import pytest

from paceline.record import provenance
from paceline.record.provenance import (
    commit,
    digest_of,
    hardware,
    num_cores,
    source_digest,
)


@pytest.fixture(autouse=True)
def other_gpus():
    """What the driver reported is asked again."""
    provenance._gpus.cache_clear()
    yield
    provenance._gpus.cache_clear()


FOLLOWED = ["package/scheme/rule.py", "package/record/rows.py", "project/model.py"]
FOLLOWED += ["project/src/net.py", "project/src/own/module.py", "project/own/deep/layer.py"]
OTHERS = ["package/report/page.py", "package/scheme/notes.md", "project/src/paceline/net.py"]
OTHERS += ["project/tests/__init__.py", "project/tests/net.py", "project/scripts/net.py"]


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_the_digest_follows_the_code_that_makes_a_record(tmp_path):
    def digest():
        digest_of.cache_clear()
        return digest_of(tmp_path / "package", tmp_path / "project")

    write(tmp_path / "project/own/__init__.py", "")
    for name in FOLLOWED:
        write(tmp_path / name, "a")
    first = digest()
    for name in OTHERS:
        write(tmp_path / name, "a")
    assert digest() == first
    for name in FOLLOWED:
        write(tmp_path / name, "b")
        changed = digest()
        (tmp_path / name).rename(tmp_path / f"{name[:-3]}s.py")
        renamed = digest()
        assert len({first, changed, renamed}) == 3, name
        first = renamed


def test_the_project_is_the_working_directory(tmp_path, monkeypatch):
    here = source_digest()
    monkeypatch.chdir(tmp_path)
    elsewhere = source_digest()
    (tmp_path / "own").mkdir()
    monkeypatch.chdir(tmp_path / "own")
    write(tmp_path / "own/src/net.py", "a")
    assert here == elsewhere != source_digest()


@pytest.mark.parametrize("does", ["sleep 60", "printf '\\377'", "exit 1"])
def test_a_program_that_hangs_or_fails_costs_no_record(does, tmp_path, monkeypatch):
    for name in ("git", "nvidia-smi"):
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(provenance, "_PATIENCE", 0.5)
    expected = "\ufffd" if "printf" in does else ""
    assert hardware()["gpus"] == ([expected] if expected else [])
    assert commit() == (f"{expected}+dirty" if expected else "")


def test_a_commit_that_git_cannot_compare_is_not_called_clean(tmp_path, monkeypatch):
    (tmp_path / "git").write_text("#!/bin/sh\ncase $* in *rev-parse*) echo abc;; *) exit 1; esac\n")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert commit() == "abc+dirty"


def test_the_rooms_exist():
    assert len(source_digest()) == 12
    package = provenance.Path(provenance.paceline.__file__).parent
    assert all((package / room / "__init__.py").exists() for room in provenance.ROOMS)
    assert all((package / file).exists() for file in provenance.FILES)


@pytest.fixture
def repository(tmp_path):
    def git(*arguments):
        name = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", "-C", tmp_path, *name, *arguments], check=True, capture_output=True)

    for name in ("src/code.py", "reports/table.csv", "experiments/a.yaml", "own.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("1")
    git("init")
    git("add", ".")
    git("commit", "-m", "one")
    return tmp_path


@pytest.mark.parametrize("code", ["src/code.py", "own.py"])
def test_a_commit_is_dirty_where_code_changed(repository, code):
    """Settings, which `dvc exp run` changes, are in the record itself."""
    clean = commit(repository)
    assert len(clean) == 40
    for name in ("reports/table.csv", "experiments/a.yaml"):
        (repository / name).write_text("2")
    assert commit(repository) == clean
    (repository / code).write_text("2")
    assert commit(repository) == f"{clean}+dirty"


def test_there_need_be_no_repository_and_no_git(tmp_path, monkeypatch):
    assert commit(tmp_path) == ""
    monkeypatch.setattr(provenance.shutil, "which", lambda _: None)
    assert commit(tmp_path) == ""
    assert hardware()["gpus"] == []


def test_nothing_slow_is_imported():
    code = (
        "import sys; from paceline.record import provenance as p; p.versions(); p.hardware();"
        "assert not {'torch', 'mlflow', 'pytorch_lightning'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_cores_are_those_that_this_process_may_use(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 7}, raising=False)
    assert num_cores() == 2
