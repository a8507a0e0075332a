"""Where a number comes from: the code, the machine, and the content of the data."""

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from paceline.record import provenance
from paceline.record.data_digest import data_digest, is_of_other_data, look_again
from paceline.record.provenance import commit, digest_of, hardware, num_cores, source_digest
from paceline.record.target import Target
from tests.data.made_data import settings, write_image_folder


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
    with monkeypatch.context() as failing:  # a git that cannot compare calls nothing clean
        told = lambda *words, **_: "abc" if "rev-parse" in words else None  # noqa: E731
        failing.setattr(provenance, "output", told)
        assert commit() == "abc+dirty"
    monkeypatch.setattr(provenance.shutil, "which", lambda _: None)
    assert commit(tmp_path) == ""
    assert hardware()["gpus"] == []


def test_cores_are_those_that_this_process_may_use(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 7}, raising=False)
    assert num_cores() == 2


OWN = {"_target_": "own.Data", "batch_size": 4, "name": "cat" * 200, "nothing": None}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, with files that data may be of."""
    monkeypatch.chdir(tmp_path)
    write_image_folder(Path("photos"))
    Path("splits").mkdir()
    np.save("splits/0.npy", np.arange(4))
    Path("empty").mkdir()


def digest(**named):
    look_again()
    return data_digest(Target("data", OWN | named))


def replace_with_the_same_size_and_time(path: Path) -> None:
    before = path.stat()
    np.save(path, np.load(path) + 1)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size


@pytest.mark.usefixtures("folder")
def test_a_file_that_was_replaced_is_another_content(monkeypatch):
    monkeypatch.setattr("paceline.data.content._FRESH_SECONDS", -1e9)  # so all digests are kept
    Path("link").symlink_to("splits")
    Path("links").mkdir()
    Path("links/0.npy").symlink_to("../splits/0.npy")
    for named in (
        {"split": "splits/0.npy"},
        {"root": "./splits/"},
        {"folds": [{"train": "splits/0.npy"}]},
        {"root": "link"},
        {"split": "link/0.npy"},
        {"root": "links"},
    ):
        data = Target("data", OWN | named)
        before = digest(**named)
        assert len(before) == 12
        replace_with_the_same_size_and_time(Path("splits/0.npy"))
        assert data_digest(data) == before  # not looked at again
        assert not is_of_other_data({"data_digest": before}, data)
        assert digest(**named) != before, named
        assert is_of_other_data({"data_digest": before}, data)


@pytest.mark.usefixtures("folder")
def test_files_of_a_model_are_of_the_content_too():
    data, model = Target("data", OWN | {"root": "photos"}), {"start": "splits/0.npy"}
    of_data, before = data_digest(data), data_digest(data, model)
    assert of_data not in (None, before)
    assert data_digest(data, {"start": "none.npy"}) == of_data
    replace_with_the_same_size_and_time(Path("splits/0.npy"))
    look_again()
    assert data_digest(data) == of_data
    assert is_of_other_data({"data_digest": before}, data, model)


@pytest.mark.usefixtures("folder")
def test_other_files_change_nothing(tmp_path):
    before = digest(root="splits")
    Path("splits/.cache").touch()
    Path("splits/broken").symlink_to("nowhere")
    Path("photos/new.png").touch()
    decoded = Path("splits/prepared/own-0123456789ab")
    decoded.mkdir(parents=True)
    (decoded / "train_images.npy").touch()
    decoded.with_suffix(".lock").touch()
    Path("splits/0.npy").touch()
    assert digest(root="splits") == before
    Path("splits/prepared/mine.csv").touch()
    assert digest(root="splits") != before


@pytest.mark.usefixtures("folder")
def test_what_names_no_file_has_no_digest(tmp_path):
    for named in (
        {},
        {"root": "missing"},
        {"root": "."},
        {"root": str(tmp_path.parent)},
        {"a": "~nobody"},
    ):
        assert digest(**named) is None
    assert digest(root="empty") is None
    shutil.rmtree("splits")
    known = {"data_digest": "0123456789ab"}
    assert not is_of_other_data(known, Target("data", OWN | {"root": "splits"}))
    assert not is_of_other_data({}, Target("data", OWN | {"root": "photos"}))
    assert not is_of_other_data(None, Target("data", OWN))


@pytest.mark.usefixtures("folder")
def test_images_in_folders_have_a_digest_of_their_own_files():
    ours = {"_target_": "paceline.data.image_folder.ImageFolder"}
    target = Target("data", ours | settings(Path("photos"), image_shape=[3, 4, 4]))
    before = data_digest(target)
    Path("photos/train/cat/0.png").unlink()
    look_again()
    assert data_digest(target) != before
    synthetic = Target("data", {"_target_": "paceline.data.synthetic.Synthetic"})
    assert data_digest(synthetic) is None
