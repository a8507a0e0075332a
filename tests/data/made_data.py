"""Tiny data sets in the real formats, written by the tests."""

import gzip
import hashlib
import pickle
import struct
from pathlib import Path

import numpy as np
from PIL import Image


def settings(root: Path, **others) -> dict:
    defaults = {
        "num_classes": 2,
        "image_shape": [1, 4, 4],
        "num_validation": 4,
        "split_seed": 0,
        "augmentation": None,
    }
    return {"root": str(root), **defaults, **others}


def random_images(number: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 256, (number, *shape), dtype=np.uint8)


def write_idx(folder: Path, num_train: int = 20, num_test: int = 10) -> dict[str, str]:
    """The four files of a tiny Fashion-MNIST of 2 classes; returns the md5s of their content."""
    folder.mkdir(parents=True, exist_ok=True)
    md5s = {}
    for part, number in (("train", num_train), ("t10k", num_test)):
        images = struct.pack(">4i", 2051, number, 4, 4) + random_images(number, 4, 4).tobytes()
        labels = struct.pack(">2i", 2049, number) + bytes(n % 2 for n in range(number))
        for name, content in ((f"{part}-images-idx3", images), (f"{part}-labels-idx1", labels)):
            path = folder / f"{name}-ubyte.gz"
            path.write_bytes(gzip.compress(content, mtime=0))
            md5s[path.name] = hashlib.md5(content).hexdigest()
    return md5s


def write_cifar10(folder: Path) -> dict[str, str]:
    """The seven pickles, 20 images each, as the numpy of 2009 wrote them; returns their md5s."""
    folder.mkdir(parents=True)
    names = [f"data_batch_{n}" for n in range(1, 6)] + ["test_batch"]
    labels = [n % 10 for n in range(20)]
    contents = {
        name: {"data": random_images(20, 3072) // (n + 1), "labels": labels}
        for n, name in enumerate(names)
    }
    contents["batches.meta"] = {"label_names": [str(n) for n in range(10)]}
    for name, content in contents.items():
        old_dtype = pickle.dumps(content, protocol=2).replace(b"\x89\x88\x87R", b"K\0K\1\x87R")
        (folder / name).write_bytes(old_dtype)
    return {n: hashlib.md5((folder / n).read_bytes()).hexdigest() for n in contents}


def write_image_folder(root: Path, parts=("train", "test"), classes=("cat", "dog"), number=6):
    """PNG files of 12 x 8 pixels, dark cats and bright dogs, with a black left border."""
    for part in parts:
        for brightness, name in enumerate(classes, start=1):
            folder = root / part / name
            folder.mkdir(parents=True)
            for n in range(number):
                pixels = np.full((8, 12, 3), 100 * brightness + n, dtype=np.uint8)
                pixels[:, 0] = 0
                Image.fromarray(pixels).save(folder / f"{n}.png")
