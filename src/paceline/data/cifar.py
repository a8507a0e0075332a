"""Reads CIFAR-10 and CIFAR-100 (Krizhevsky 2009), and verifies their checksums.

The files are pickles. Only those with the published checksums are read, and of what they may name
only an array of NumPy is built.
"""

import hashlib
import io
import pickle
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from paceline.data.image_set import Known
from paceline.data.prepared import AbstractPreparedImageData, download
from paceline.data.source import Part, Source, whole
from paceline.errors import SettingError
from paceline.settings import UNKEYED

_NUM_CLASSES = (10, 100)
_ARRAYS = {  # of what a pickled array of NumPy consists
    *((f"numpy.{core}.multiarray", "_reconstruct") for core in ("core", "_core")),
    *(("numpy", name) for name in ("ndarray", "dtype")),
    ("_codecs", "encode"),
}


class Cifar(AbstractPreparedImageData):
    """CIFAR-10 or CIFAR-100: `num_classes` says which.

    The files, unpacked or as an archive, are searched in `root`. If they are not there, they are
    downloaded into `root`. Raises SettingError("data.num_classes") unless the number of classes is
    10 or 100.
    """

    root: Annotated[Path, UNKEYED]

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        if self.num_classes not in _NUM_CLASSES:
            raise SettingError("data.num_classes", f"CIFAR has 10 or 100, not {self.num_classes}")
        self.name = f"cifar{self.num_classes}"

    @property
    def known(self) -> Known:
        return Known(50_000, self.num_classes, (3, 32, 32))

    def fingerprint(self) -> str:
        return self.name

    def read(self) -> Source:
        from torchvision.datasets import CIFAR10, CIFAR100  # 3 s

        dataset = {10: CIFAR10, 100: CIFAR100}[self.num_classes]
        if not (self.root / dataset.base_folder).exists():
            self._unpack(dataset)
        folder = self.root / dataset.base_folder
        train, test = (_part(folder, files) for files in (dataset.train_list, dataset.test_list))
        return Source(train, test, self.num_classes, (3, 32, 32))

    def _unpack(self, dataset: Any) -> None:
        from torchvision.datasets.utils import download_and_extract_archive

        archive = self.root / dataset.filename

        def fetch(temporary: Path) -> None:
            if archive.exists():
                (temporary / dataset.filename).symlink_to(archive.resolve())
            name, md5 = dataset.filename, dataset.tgz_md5
            download_and_extract_archive(dataset.url, temporary, filename=name, md5=md5)

        if archive.exists():
            _verify_file(archive, dataset.tgz_md5)
        looked_for = f"neither {dataset.base_folder}/ nor {dataset.filename} in {self.root}"
        download(fetch, dataset.base_folder, self.root, looked_for)


def _verify_file(path: Path, md5: str) -> bytes:
    """Return the content of a file. Raises SettingError("data.root") for another checksum."""
    if not path.is_file():
        raise SettingError("data.root", f"{path} is missing: delete its folder to get all anew")
    content = path.read_bytes()
    if hashlib.md5(content, usedforsecurity=False).hexdigest() != md5:
        raise SettingError("data.root", f"{path} is corrupt: its md5 is not {md5}")
    return content


def _part(folder: Path, files: Sequence[Sequence[str]]) -> Part:
    with warnings.catch_warnings():
        # The files are pickles of an old numpy, which numpy 2.4 deprecates.
        warnings.simplefilter("ignore", np.exceptions.VisibleDeprecationWarning)
        read = [_Plain(_verify_file(folder / name, md5)).load() for name, md5 in files]
    images = np.concatenate([each["data"] for each in read]).reshape(-1, 3, 32, 32)
    labels = [each.get("labels") or each["fine_labels"] for each in read]
    return whole(images, np.concatenate(labels))


class _Plain(pickle.Unpickler):
    """Reads a pickle of plain values and arrays, in which Python 2 wrote texts."""

    def __init__(self, content: bytes) -> None:
        super().__init__(io.BytesIO(content), encoding="latin1")

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ARRAYS:
            raise SettingError("data.root", f"a file of CIFAR names {module}.{name}")
        return super().find_class(module, name)
