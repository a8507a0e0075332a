"""Where a number comes from is told without importing anything slow."""

import json
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
    versions,
)


@pytest.fixture(autouse=True)
def other_gpus():
    """What the driver reported is asked again."""
    provenance._gpus.cache_clear()
    yield
    provenance._gpus.cache_clear()


def test_the_digest_follows_the_rooms_that_make_a_record(tmp_path):
    (tmp_path / "scheme").mkdir()
    (tmp_path / "report").mkdir()
    (tmp_path / "scheme/rule.py").write_text("a")
    project = tmp_path / "project"
    first = digest_of(tmp_path, project)
    (tmp_path / "report/page.py").write_text("a")
    (tmp_path / "scheme/notes.md").write_text("a")
    assert digest_of(tmp_path, project) == first
    (tmp_path / "scheme/rule.py").write_text("b")
    second = digest_of(tmp_path, project)
    (tmp_path / "scheme/rule.py").rename(tmp_path / "scheme/law.py")
    assert len({first, second, digest_of(tmp_path, project)}) == 3


OWN = ["model.py", "src/net.py", "src/own/module.py", "own/__init__.py", "own/deep/layer.py"]
OTHERS = [
    "src/paceline/net.py",
    "tests/__init__.py",
    "tests/net.py",
    "scripts/net.py",
    "src/net.md",
]


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize("name", OWN)
def test_the_digest_follows_the_code_of_the_project(name, tmp_path):
    for each in OWN:
        write(tmp_path / each, "a")
    before = digest_of(tmp_path / "no package", tmp_path)
    write(tmp_path / name, "b")
    changed = digest_of(tmp_path / "no package", tmp_path)
    (tmp_path / name).unlink()
    assert len({before, changed, digest_of(tmp_path / "no package", tmp_path)}) == 3


def test_the_digest_does_not_follow_what_no_point_runs(tmp_path):
    before = digest_of(tmp_path, tmp_path)
    for name in OTHERS:
        write(tmp_path / name, "a")
    assert digest_of(tmp_path, tmp_path) == before


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


def test_a_copy_without_a_repository_is_told_its_commit(tmp_path, monkeypatch):
    (tmp_path / "own.py").write_text("a = 1")
    digest = digest_of(provenance.Path(provenance.paceline.__file__).parent, tmp_path)
    for told, expected in (
        (f"{'a' * 40}:{digest}", "a" * 40),
        (f"{'a' * 40}:{'b' * 12}", f"{'a' * 40}+dirty"),
        ("a" * 40, ""),
        (f"main:{digest}", ""),
    ):
        monkeypatch.setenv("PACELINE_COMMIT", told)
        assert commit(tmp_path) == expected
    (tmp_path / "reports").mkdir()
    (tmp_path / "README.md").write_text("a")
    monkeypatch.setenv("PACELINE_COMMIT", f"{'a' * 40}:{digest}")
    assert commit(tmp_path) == "a" * 40


def test_a_copy_with_an_older_repository_is_told_its_commit(repository, monkeypatch):
    own = commit(repository)
    (repository / "own.py").write_text("2")
    digest = digest_of(provenance.Path(provenance.paceline.__file__).parent, repository)
    for told, expected in ((digest, "a" * 40), ("b" * 12, f"{own}+dirty")):
        monkeypatch.setenv("PACELINE_COMMIT", f"{'a' * 40}:{told}")
        assert commit(repository) == expected


def test_there_need_be_no_repository_and_no_git(tmp_path, monkeypatch):
    assert commit(tmp_path) == ""
    monkeypatch.setattr(provenance.shutil, "which", lambda _: None)
    assert commit(tmp_path) == ""
    assert hardware()["gpus"] == []


def test_hardware_and_versions_are_plain_values():
    seen = json.loads(json.dumps({"hardware": hardware(), "versions": versions()}))
    assert seen["hardware"]["cores"] >= 1
    assert seen["hardware"]["cpu"]
    assert {"python", "torch", "pytorch-lightning"} <= seen["versions"].keys()


def test_nothing_slow_is_imported():
    code = (
        "import sys; from paceline.record import provenance as p; p.versions(); p.hardware();"
        "assert not {'torch', 'mlflow', 'pytorch_lightning'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_cores_are_those_that_this_process_may_use():
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert num_cores() == 1
    finally:
        os.sched_setaffinity(0, before)
    assert num_cores() == len(before)
