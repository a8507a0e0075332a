"""Reads CIFAR-10 and CIFAR-100 (Krizhevsky 2009) by torchvision, and verifies their checksums."""

import warnings
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from paceline.data.prepared import AbstractPreparedImageData, download
from paceline.data.source import Part, Source, whole
from paceline.errors import SettingError
from paceline.settings import UNKEYED

_NUM_CLASSES = (10, 100)


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

    def fingerprint(self) -> str:
        return self.name

    def read(self) -> Source:
        from torchvision.datasets import CIFAR10, CIFAR100  # 3 s

        dataset = {10: CIFAR10, 100: CIFAR100}[self.num_classes]
        if not (self.root / dataset.base_folder).exists():
            self._unpack(dataset)
        _verify(self.root / dataset.base_folder, dataset)
        train, test = (_part(dataset, self.root, train) for train in (True, False))
        return Source(train, test, self.num_classes, (3, 32, 32))

    def _unpack(self, dataset: Any) -> None:
        archive = self.root / dataset.filename

        def fetch(temporary: Path) -> None:
            if archive.exists():
                (temporary / dataset.filename).symlink_to(archive.resolve())
            dataset(temporary, download=True)

        if archive.exists():
            _verify_file(archive, dataset.tgz_md5)
        looked_for = f"neither {dataset.base_folder}/ nor {dataset.filename} in {self.root}"
        download(fetch, dataset.base_folder, self.root, looked_for)


def _verify(folder: Path, dataset: Any) -> None:
    files = [*dataset.train_list, *dataset.test_list]
    for name, md5 in [*files, (dataset.meta["filename"], dataset.meta["md5"])]:
        _verify_file(folder / name, md5)


def _verify_file(path: Path, md5: str) -> None:
    from torchvision.datasets.utils import check_integrity

    if not path.is_file():
        raise SettingError("data.root", f"{path} is missing: delete its folder to get all anew")
    if not check_integrity(path, md5):
        raise SettingError("data.root", f"{path} is corrupt: its md5 is not {md5}")


def _part(dataset: Any, root: Path, train: bool) -> Part:
    with warnings.catch_warnings():
        # The files are pickles of an old numpy, which numpy 2.4 deprecates.
        warnings.simplefilter("ignore", np.exceptions.VisibleDeprecationWarning)
        decoded = dataset(root, train=train)
    return whole(decoded.data.transpose(0, 3, 1, 2), np.array(decoded.targets))
