"""Reads CIFAR-10 and CIFAR-100 (Krizhevsky 2009)."""

import warnings
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from paceline.data.image_set import Known
from paceline.data.prepared import AbstractPreparedImageData, downloading, require_answer
from paceline.data.source import Source, whole
from paceline.errors import SettingError
from paceline.settings import UNKEYED

_SERVER = "https://www.cs.toronto.edu/"  # as in torchvision
_FOLDERS = {10: "cifar-10-batches-py", 100: "cifar-100-python"}


class Cifar(AbstractPreparedImageData):
    """CIFAR-10 or CIFAR-100: `num_classes` says which.

    The files, unpacked or as an archive, are searched in `root`. If they are not there, or if
    their checksums are not the published ones, they are downloaded into `root`. They are pickles,
    and none is read that has another checksum. Raises SettingError("data.num_classes") unless the
    number of classes is 10 or 100.
    """

    root: Annotated[Path, UNKEYED]

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        if self.num_classes not in _FOLDERS:
            raise SettingError("data.num_classes", f"CIFAR has 10 or 100, not {self.num_classes}")
        self.name = f"cifar{self.num_classes}"
        self._names = _FOLDERS[self.num_classes], f"cifar-{self.num_classes}-python.tar.gz"
        self._looked_for = f"neither {'/ nor '.join(self._names)} in {self.root}"

    @property
    def known(self) -> Known:
        return Known(50_000, self.num_classes, (3, 32, 32))

    def fingerprint(self) -> str:
        return self.name

    def require_files(self) -> None:
        places = self.folder(), *(self.root / name for name in self._names)
        if not any(path.exists() for path in places):
            require_answer(_SERVER, self._looked_for)

    def read(self) -> Source:
        from torchvision.datasets import CIFAR10, CIFAR100  # 3 s

        dataset = {10: CIFAR10, 100: CIFAR100}[self.num_classes]
        with downloading(self._looked_for), warnings.catch_warnings():
            # The files are pickles of an old numpy, which numpy 2.4 deprecates.
            warnings.simplefilter("ignore", np.exceptions.VisibleDeprecationWarning)
            sets = [dataset(self.root, train=train, download=True) for train in (True, False)]
        train, test = (
            whole(each.data.transpose(0, 3, 1, 2), np.array(each.targets)) for each in sets
        )
        return Source(train, test, self.num_classes, (3, 32, 32))
