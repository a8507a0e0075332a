"""The digest of a point's data is of the files that its settings name."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from paceline.record.data_digest import data_digest, is_of_other_data, look_again
from paceline.record.target import Target
from tests.data.made_data import settings, write_image_folder

OWN = {"_target_": "own.Data", "batch_size": 4, "name": "cat" * 200, "nothing": None}


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path, monkeypatch):
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


def test_images_in_folders_have_a_digest_of_their_own_files():
    ours = {"_target_": "paceline.data.image_folder.ImageFolder"}
    target = Target("data", ours | settings(Path("photos"), image_shape=[3, 4, 4]))
    before = data_digest(target)
    Path("photos/train/notes.txt").touch()
    look_again()
    assert data_digest(target) == before
    Path("photos/train/cat/0.png").unlink()
    look_again()
    assert data_digest(target) != before
    synthetic = Target("data", {"_target_": "paceline.data.synthetic.Synthetic"})
    assert data_digest(synthetic) is None
