import hashlib
import io
import pickle
import subprocess
import tarfile

import numpy as np
import pytest
from torchvision.datasets import CIFAR10

from paceline.data.cifar import Cifar
from paceline.errors import SettingError
from tests.data.made_data import random_images, settings, write_cifar10

SIZES = {"num_classes": 10, "image_shape": [3, 32, 32], "num_validation": 20}
FOLDER = CIFAR10.base_folder


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A data root with a tiny CIFAR-10, whose checksums are taken for the original's."""
    md5s = write_cifar10(tmp_path / FOLDER)
    for listing in ("train_list", "test_list"):
        files = [[name, md5s[name]] for name, _ in getattr(CIFAR10, listing)]
        monkeypatch.setattr(CIFAR10, listing, files)
    monkeypatch.setattr(CIFAR10, "meta", {**CIFAR10.meta, "md5": md5s["batches.meta"]})
    monkeypatch.setattr(CIFAR10, "url", "http://127.0.0.1:9/cifar.tar.gz")
    return tmp_path


def test_files_are_read_exactly(tiny):
    splits = Cifar(**settings(tiny, **SIZES)).load()
    assert [len(s) for s in (splits.train, splits.validation, splits.test)] == [80, 20, 20]
    expected = random_images(20, 3072).reshape(20, 3, 32, 32) // 6
    assert np.array_equal(splits.test.images, expected)
    assert splits.test.labels.tolist() == [n % 10 for n in range(20)]
    assert splits.validation.labels.bincount().tolist() == [2] * 10


def test_an_archive_is_unpacked(tiny, monkeypatch):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.add(tiny / FOLDER, FOLDER)
    root = tiny / "archived"
    root.mkdir()
    (root / CIFAR10.filename).write_bytes(packed.getvalue())
    monkeypatch.setattr(CIFAR10, "tgz_md5", hashlib.md5(packed.getvalue()).hexdigest())
    assert len(Cifar(**settings(root, **SIZES)).load().train) == 80
    names = sorted(path.name for path in root.iterdir())
    assert names == [FOLDER, CIFAR10.filename, "prepared"]


def test_corrupt_archive_is_named(tiny):
    root = tiny / "archived"
    root.mkdir()
    (root / CIFAR10.filename).write_bytes(b"nonsense")
    with pytest.raises(SettingError, match=r"data\.root: .*cifar-10-python\.tar\.gz is corrupt"):
        Cifar(**settings(root, **SIZES)).load()


def test_missing_and_corrupt_files_are_named(tiny):
    (tiny / FOLDER / "test_batch").unlink()
    with pytest.raises(SettingError, match=r"data\.root: .*/test_batch is missing"):
        Cifar(**settings(tiny, **SIZES)).load()
    (tiny / FOLDER / "test_batch").write_bytes(b"nonsense")
    with pytest.raises(SettingError, match=r"data\.root: .*/test_batch is corrupt"):
        Cifar(**settings(tiny, **SIZES)).load()


def test_a_file_that_would_run_code_is_named(tiny, monkeypatch):
    """Even if it had the right checksum, which is MD5."""
    content = pickle.dumps({"data": subprocess.Popen})
    (tiny / FOLDER / "test_batch").write_bytes(content)
    files = [["test_batch", hashlib.md5(content).hexdigest()]]
    monkeypatch.setattr(CIFAR10, "test_list", files)
    with pytest.raises(SettingError, match=r"data\.root: .* names subprocess\.Popen"):
        Cifar(**settings(tiny, **SIZES)).load()


def test_failing_download_is_one_line(tiny):
    root = tiny / "empty"
    with pytest.raises(SettingError, match=r"neither cifar-10.* and the download failed") as caught:
        Cifar(**settings(root, **SIZES)).load()
    assert "\n" not in str(caught.value)
    assert [path.name for path in root.iterdir()] == ["prepared"]


def test_other_numbers_of_classes_are_refused():
    with pytest.raises(SettingError, match=r"data\.num_classes: CIFAR has 10 or 100, not 20"):
        Cifar(**settings("data", **{**SIZES, "num_classes": 20}))
