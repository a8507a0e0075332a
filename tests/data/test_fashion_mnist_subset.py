import hashlib
import io
import runpy
from pathlib import Path

import numpy as np
import pytest

from paceline.data import fashion_mnist_subset
from paceline.data.fashion_mnist import DEBIAN_FOLDER
from paceline.data.fashion_mnist_subset import (
    CHECKSUM_FILE,
    SUBSET_FILE,
    FashionMnistSubset,
    verified_subset,
)
from paceline.errors import SettingError
from tests.data.made_data import settings

SCRIPT = Path(__file__).parents[2] / "scripts/make_fashion_mnist_subset.py"
SIZES = {"num_classes": 10, "image_shape": [1, 28, 28], "num_validation": 2000}


def test_committed_checksum_is_that_of_the_file():
    checksum, name = CHECKSUM_FILE.read_text().split()
    assert name == SUBSET_FILE.name
    assert hashlib.sha256(SUBSET_FILE.read_bytes()).hexdigest() == checksum
    assert SUBSET_FILE.stat().st_size <= 8_000_000


@pytest.mark.skipif(not DEBIAN_FOLDER.exists(), reason="needs Debian's dataset-fashion-mnist")
def test_the_script_makes_the_committed_content():
    made = runpy.run_path(str(SCRIPT))["subset"](DEBIAN_FOLDER)
    with np.load(io.BytesIO(verified_subset())) as committed:
        assert sorted(committed.files) == sorted(made)
        assert all(np.array_equal(committed[name], made[name]) for name in made)


def test_splits_are_stratified(tmp_path):
    splits = FashionMnistSubset(**settings(tmp_path, **SIZES)).load()
    assert splits.train.labels.bincount().tolist() == [1000] * 10
    assert splits.validation.labels.bincount().tolist() == [200] * 10
    assert splits.test.labels.bincount().tolist() == [200] * 10
    assert splits.train.images.shape == (10_000, 1, 28, 28)


def test_corrupt_and_missing_files_are_named(tmp_path, monkeypatch):
    file = tmp_path / "subset.npz"
    monkeypatch.setattr(fashion_mnist_subset, "SUBSET_FILE", file)
    with pytest.raises(SettingError, match=r"installation is incomplete.*subset\.npz"):
        FashionMnistSubset(**settings(tmp_path, **SIZES)).load()
    file.write_bytes(SUBSET_FILE.read_bytes()[:-1])
    with pytest.raises(SettingError, match=r"subset\.npz is corrupt"):
        FashionMnistSubset(**settings(tmp_path, **SIZES)).load()
