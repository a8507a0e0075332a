"""Reads images from one folder per class, in any format that Pillow reads."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from paceline.data.prepared import AbstractPreparedImageData
from paceline.data.source import Part, Source
from paceline.errors import SettingError

_MODES = {1: "L", 3: "RGB"}  # Pillow's names, by channels


class ImageFolder(AbstractPreparedImageData):
    """Data set of the files `root/train/<class>/*` and `root/test/<class>/*`.

    Images are resized and centre-cropped to `image_shape`. The validation set consists of the files
    `root/val/<class>/*` if the folder `root/val` exists; `num_validation` is then not used.
    Otherwise `num_validation` images are taken out of the training set for validation.
    """

    name = "image_folder"
    has_files = True

    def fingerprint(self) -> list[Any]:
        """Return the names, sizes and modification times of all files, and the image shape.

        This takes about 0.4 s per 100,000 files.
        """
        folders = [self._folder("train"), self._folder("test"), self.root / "val"]
        return [self.image_shape, [_listing(folder) for folder in folders]]

    def read(self) -> Source:
        if self.image_shape[0] not in _MODES:
            message = f"{list(self.image_shape)}: 1 or 3 channels can be decoded"
            raise SettingError("data.image_shape", message)
        classes, train = self._part("train")
        _, test = self._part("test", classes)
        validation = self._part("val", classes)[1] if (self.root / "val").is_dir() else None
        return Source(train, test, len(classes), self.image_shape, validation)

    def encoded(self) -> Part:
        return self.read().parts(self.num_validation, self.split_seed)["train"]

    def _folder(self, part: str) -> Path:
        folder = self.root / part
        if not folder.is_dir():
            message = f"no folder {folder}; looked for {self.root}/{{train,test}}/<class>/*"
            raise SettingError("data.root", message)
        return folder

    def _part(self, part: str, expected: list[str] | None = None) -> tuple[list[str], Part]:
        from torchvision.datasets import ImageFolder as Listing  # 3 s

        folder = self._folder(part)
        try:
            listing = Listing(folder)
        except FileNotFoundError as error:
            raise SettingError("data.root", f"in {folder}: {error}") from error
        if expected is not None and listing.classes != expected:
            unmatched = sorted(set(listing.classes) ^ set(expected))
            raise SettingError("data.root", f"train and {part} differ in classes: {unmatched[:5]}")
        labels = np.array(listing.targets, dtype=np.int64)
        files = DecodedFiles([path for path, _ in listing.samples], self.image_shape)
        return listing.classes, Part(files, labels, np.arange(len(labels)))


def _listing(folder: Path) -> list[tuple[str, int, int]]:
    return sorted(
        (entry.path, entry.stat().st_size, entry.stat().st_mtime_ns)
        for parent, _, _ in os.walk(folder)
        for entry in os.scandir(parent)
        if entry.is_file()
    )


class DecodedFiles:
    """Image files that are decoded when indexed, on as many threads as there are cores.

    Indexing raises SettingError("data.root") for a file that cannot be decoded.
    """

    def __init__(self, paths: list[str], image_shape: tuple[int, ...]) -> None:
        self._paths = paths
        self._image_shape = image_shape

    def __getitem__(self, rows: np.ndarray, /) -> np.ndarray:
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            return np.stack(list(threads.map(self._decode, (self._paths[row] for row in rows))))

    def _decode(self, path: str) -> np.ndarray:
        from PIL import Image, ImageOps

        channels, height, width = self._image_shape
        try:
            with Image.open(path) as image:
                pixels, size = image.convert(_MODES[channels]), (width, height)
                fitted = ImageOps.fit(pixels, size, Image.Resampling.BILINEAR)
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            raise SettingError("data.root", f"{path} cannot be decoded: {error}") from error
        return np.asarray(fitted).reshape(height, width, channels).transpose(2, 0, 1)
