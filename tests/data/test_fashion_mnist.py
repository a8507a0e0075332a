import gzip
import hashlib
import struct
from functools import partial
from http.server import HTTPServer, SimpleHTTPRequestHandler
from threading import Thread

import numpy as np
import pytest

from paceline.data import fashion_mnist
from paceline.data.fashion_mnist import CONTENT_MD5S, DEBIAN_FOLDER, FashionMnist
from paceline.errors import SettingError
from tests.data.made_data import random_images, settings, write_idx

PACKED = {"train": 1504176606, "t10k": 1504176627}  # when Zalando compressed the files


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A data root with a tiny Fashion-MNIST, whose checksums are taken for the original's."""
    monkeypatch.setattr(fashion_mnist, "CONTENT_MD5S", write_idx(tmp_path / "FashionMNIST/raw"))
    monkeypatch.setattr(fashion_mnist, "DEBIAN_FOLDER", tmp_path / "debian")
    return tmp_path


@pytest.mark.skipif(not DEBIAN_FOLDER.exists(), reason="needs Debian's dataset-fashion-mnist")
def test_content_checksums_are_those_of_the_files_that_torchvision_downloads():
    from torchvision.datasets import FashionMNIST

    for name, md5 in FashionMNIST.resources:
        packed = (DEBIAN_FOLDER / name).read_bytes()
        assert hashlib.md5(gzip.decompress(packed)).hexdigest() == CONTENT_MD5S[name]
        time = struct.pack("<I", PACKED[name.split("-")[0]])
        original_name = name.removesuffix(".gz").encode() + b"\0"
        header = b"\x1f\x8b\x08\x08" + time + b"\0\3" + original_name
        assert hashlib.md5(header + packed[10:]).hexdigest() == md5


@pytest.mark.parametrize("folder", [".", "FashionMNIST/raw", "debian"])
def test_files_are_found_in_each_place_and_read_exactly(tiny, folder):
    if folder != "FashionMNIST/raw":
        (tiny / folder).mkdir(exist_ok=True)
        for path in list((tiny / "FashionMNIST/raw").iterdir()):
            path.rename(tiny / folder / path.name)
    splits = FashionMnist(**settings(tiny)).load()
    assert [len(s) for s in (splits.train, splits.validation, splits.test)] == [16, 4, 10]
    assert np.array_equal(splits.test.images[:, 0], random_images(10, 4, 4))
    assert splits.test.labels.tolist() == [0, 1] * 5
    assert splits.validation.labels.bincount().tolist() == [2, 2]


def test_mean_and_std_are_of_the_training_images(tiny):
    splits = FashionMnist(**settings(tiny)).load()
    pixels = splits.train.images.double() / 255
    assert splits.mean == pytest.approx((pixels.mean().item(),), abs=1e-12)
    assert splits.std == pytest.approx((pixels.std(correction=0).item(),), abs=1e-12)


def test_download_through_torchvision_is_whole_and_verified(tiny, monkeypatch):
    from torchvision.datasets import FashionMNIST

    folder = tiny / "FashionMNIST/raw"
    md5s = [(f.name, hashlib.md5(f.read_bytes()).hexdigest()) for f in sorted(folder.iterdir())]
    monkeypatch.setattr(FashionMNIST, "resources", md5s)
    root = tiny / "elsewhere"
    with HTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=folder)) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setattr(FashionMNIST, "mirrors", [f"http://127.0.0.1:{server.server_port}/"])
        assert len(FashionMnist(**settings(root)).load().train) == 16
        server.shutdown()
    assert sorted(path.name for path in root.iterdir()) == ["FashionMNIST", "prepared"]


def test_failing_download_is_one_line_that_says_what_was_looked_for_where(tiny, monkeypatch):
    from torchvision.datasets import FashionMNIST

    monkeypatch.setattr(FashionMNIST, "mirrors", ["http://127.0.0.1:9/"])
    root = tiny / "elsewhere"
    with pytest.raises(SettingError, match=r"download failed: .* refused") as caught:
        FashionMnist(**settings(root)).load()
    message = str(caught.value)
    assert message.startswith("data.root: Fashion-MNIST (train-images-idx3-ubyte.gz")
    assert all(str(place) in message for place in (root, tiny / "debian"))
    assert "\n" not in message
    assert [path.suffix for path in (root / "prepared").iterdir()] == [".lock"]


def test_missing_file_is_named(tiny):
    (tiny / "FashionMNIST/raw/t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(SettingError, match=r"data\.root: .*raw has no t10k-labels-idx1-ubyte\.gz"):
        FashionMnist(**settings(tiny)).prepare()


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-20], lambda b: b"nonsense", lambda b: gzip.compress(b"other")]
)
def test_corrupt_file_is_named(tiny, damage):
    path = tiny / "FashionMNIST/raw/train-images-idx3-ubyte.gz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(SettingError, match=r"data\.root: .*/train-images.* is corrupt"):
        FashionMnist(**settings(tiny)).prepare()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"num_classes": 10}, r"data\.num_classes: 10, but .* has 2 classes"),
        ({"image_shape": [1, 5, 4]}, r"data\.image_shape: \[1, 5, 4\], but .* of \[1, 4, 4\]"),
        ({"image_shape": [4, 4]}, r"data\.image_shape: \[C, H, W\] is needed"),
        ({"num_validation": 19}, r"data\.num_validation: 19 of 20 .* 1 to 18 can"),
    ],
)
def test_settings_that_do_not_fit_are_refused_by_name(tiny, wrong, message):
    for _ in range(2):  # the second time from prepared files
        with pytest.raises(SettingError, match=message):
            FashionMnist(**settings(tiny, **wrong)).load()
        FashionMnist(**settings(tiny)).prepare()
