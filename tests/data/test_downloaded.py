"""Fashion-MNIST, its installed subset, and CIFAR: read exactly, downloaded whole, or refused."""

import gzip
import hashlib
import io
import runpy
import shutil
import tarfile
from functools import partial
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from torchvision.datasets import CIFAR10, FashionMNIST

from paceline.data import fashion_mnist
from paceline.data.cifar import Cifar
from paceline.data.fashion_mnist import DEBIAN_FOLDER, FashionMnist
from paceline.data.fashion_mnist_subset import SUBSET_FILE, FashionMnistSubset
from paceline.errors import SettingError
from tests.data.made_data import random_images, settings, write_cifar10, write_idx

SCRIPT = Path(__file__).parents[2] / "scripts/make_fashion_mnist_subset.py"
OF_CIFAR = {"num_classes": 10, "image_shape": [3, 32, 32], "num_validation": 20}
OF_SUBSET = {"num_classes": 10, "image_shape": [1, 28, 28], "num_validation": 2000}
UNPACKED = CIFAR10.base_folder


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def fashion(tmp_path, monkeypatch):
    """A data root with a tiny Fashion-MNIST, whose checksums are taken for the original's."""
    monkeypatch.setattr(fashion_mnist, "CONTENT_MD5S", write_idx(tmp_path / "FashionMNIST/raw"))
    monkeypatch.setattr(fashion_mnist, "DEBIAN_FOLDER", tmp_path / "debian")
    monkeypatch.setattr(FashionMNIST, "mirrors", ["http://127.0.0.1:9/"])
    monkeypatch.setattr(fashion_mnist, "_SERVER", "http://127.0.0.1:9/")
    return tmp_path


@pytest.fixture
def cifar(tmp_path, monkeypatch):
    """A data root with a tiny CIFAR-10, whose checksums are taken for the original's."""
    md5s = write_cifar10(tmp_path / UNPACKED)
    for listing in ("train_list", "test_list"):
        files = [[name, md5s[name]] for name, _ in getattr(CIFAR10, listing)]
        monkeypatch.setattr(CIFAR10, listing, files)
    monkeypatch.setattr(CIFAR10, "meta", {**CIFAR10.meta, "md5": md5s["batches.meta"]})
    monkeypatch.setattr(CIFAR10, "url", "http://127.0.0.1:9/cifar.tar.gz")
    return tmp_path


@pytest.mark.skipif(not DEBIAN_FOLDER.exists(), reason="needs Debian's dataset-fashion-mnist")
def test_the_script_makes_the_committed_subset():
    made = runpy.run_path(str(SCRIPT))["subset"](DEBIAN_FOLDER)
    with np.load(SUBSET_FILE) as committed:
        assert sorted(committed.files) == sorted(made)
        assert all(np.array_equal(committed[name], made[name]) for name in made)


def test_splits_of_the_subset_are_stratified(tmp_path):
    splits = FashionMnistSubset(**settings(tmp_path, **OF_SUBSET)).load()
    assert splits.train.labels.bincount().tolist() == [1000] * 10
    assert splits.validation.labels.bincount().tolist() == [200] * 10
    assert splits.test.labels.bincount().tolist() == [200] * 10
    assert splits.train.images.shape == (10_000, 1, 28, 28)


@pytest.mark.parametrize("folder", [".", "FashionMNIST/raw", "debian"])
def test_fashion_mnist_is_found_in_each_place_and_read_exactly(fashion, folder):
    if folder != "FashionMNIST/raw":
        (fashion / folder).mkdir(exist_ok=True)
        for path in list((fashion / "FashionMNIST/raw").iterdir()):
            path.rename(fashion / folder / path.name)
    splits = FashionMnist(**settings(fashion)).load()
    assert [len(s) for s in (splits.train, splits.validation, splits.test)] == [16, 4, 10]
    assert np.array_equal(splits.test.images[:, 0], random_images(10, 4, 4))
    assert splits.test.labels.tolist() == [0, 1] * 5
    assert splits.validation.labels.bincount().tolist() == [2, 2]
    pixels = splits.train.images.double() / 255
    assert splits.mean == pytest.approx((pixels.mean().item(),), abs=1e-12)
    assert splits.std == pytest.approx((pixels.std(correction=0).item(),), abs=1e-12)


@pytest.mark.parametrize("left", ["FashionMNIST", "prepared", "cifar-10-batches-py"])
def test_no_server_is_asked_where_the_files_are_or_what_was_made_of_them(left, fashion, cifar):
    """Both in one root."""
    kind = (
        Cifar(**settings(cifar, **OF_CIFAR))
        if "cifar" in left
        else FashionMnist(**settings(fashion))
    )
    kind.prepare()
    for each in {"FashionMNIST", "prepared", "cifar-10-batches-py"} - {left}:
        shutil.rmtree(fashion / each)
    kind.require_files()


@pytest.mark.parametrize("archived", [False, True])
def test_cifar_is_read_exactly_from_its_files_and_from_an_archive(cifar, archived, monkeypatch):
    root = cifar
    if archived:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            archive.add(cifar / UNPACKED, UNPACKED)
        root = cifar / "archived"
        root.mkdir()
        (root / CIFAR10.filename).write_bytes(packed.getvalue())
        monkeypatch.setattr(CIFAR10, "tgz_md5", hashlib.md5(packed.getvalue()).hexdigest())
    splits = Cifar(**settings(root, **OF_CIFAR)).load()
    assert [len(s) for s in (splits.train, splits.validation, splits.test)] == [80, 20, 20]
    expected = random_images(20, 3072).reshape(20, 3, 32, 32) // 6
    assert np.array_equal(splits.test.images, expected)
    assert splits.test.labels.tolist() == [n % 10 for n in range(20)]


def test_a_file_of_cifar_with_another_checksum_is_not_read(cifar):
    (cifar / UNPACKED / "test_batch").write_bytes(b"nonsense")
    with pytest.raises(SettingError, match=r"^data\.root: [^\n]*the download failed[^\n]*$"):
        Cifar(**settings(cifar, **OF_CIFAR)).load()


def test_a_download_through_torchvision_is_whole_and_verified(fashion, monkeypatch):
    folder = fashion / "FashionMNIST/raw"
    md5s = [(f.name, hashlib.md5(f.read_bytes()).hexdigest()) for f in sorted(folder.iterdir())]
    monkeypatch.setattr(FashionMNIST, "resources", md5s)
    root = fashion / "elsewhere"
    with HTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=folder)) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setattr(FashionMNIST, "mirrors", [f"http://127.0.0.1:{server.server_port}/"])
        with monkeypatch.context() as broken:
            broken.setattr(FashionMNIST, "resources", [*md5s[:-1], (md5s[-1][0], "another")])
            with pytest.raises(SettingError, match="download failed"):
                FashionMnist(**settings(root)).load()
        assert not (root / "FashionMNIST").exists()
        assert len(FashionMnist(**settings(root)).load().train) == 16  # all is fetched again
        server.shutdown()


def test_a_failing_download_is_one_line_that_says_what_was_looked_for_where(fashion):
    root = fashion / "elsewhere"
    data = FashionMnist(**settings(root))
    for refused in (data.require_files, data.load):
        with pytest.raises(SettingError, match=r"^data\.root: .* download failed: .*") as caught:
            refused()
        message = str(caught.value)
        assert all(str(place) in message for place in (root, fashion / "debian"))
        assert "\n" not in message
    assert [path.suffix for path in (root / "prepared").iterdir()] == [".lock"]


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-20], lambda b: b"nonsense", lambda b: gzip.compress(b"other")]
)
def test_a_corrupt_file_is_named(fashion, damage):
    path = fashion / "FashionMNIST/raw/train-images-idx3-ubyte.gz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(SettingError, match=r"data\.root: .*/train-images.* is corrupt"):
        FashionMnist(**settings(fashion)).prepare()


@pytest.mark.parametrize(
    ("kind", "wrong", "message"),
    [
        (FashionMnist, {"num_classes": 10}, r"data\.num_classes: 10, but .* has 2 classes"),
        (FashionMnist, {"image_shape": [1, 5, 4]}, r"data\.image_shape: .* of \[1, 4, 4\]"),
        (FashionMnist, {"image_shape": [4, 4]}, r"data\.image_shape: \[C, H, W\] is needed"),
        (FashionMnist, {"num_validation": 19}, r"data\.num_validation: 19 of 20 .* 1 to 18 can"),
        (Cifar, {"num_classes": 20}, r"data\.num_classes: CIFAR has 10 or 100, not 20"),
    ],
)
def test_settings_that_do_not_fit_are_refused_by_name(fashion, kind, wrong, message):
    for _ in range(2):  # the second time from prepared files
        with pytest.raises(SettingError, match=message):
            kind(**settings(fashion, **wrong)).load()
        FashionMnist(**settings(fashion)).prepare()
