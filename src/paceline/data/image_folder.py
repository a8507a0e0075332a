"""Reads images from one folder per class, in any format that Pillow reads."""

import os
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from paceline.data.content import content_digest, files_below
from paceline.data.prepared import AbstractPreparedImageData
from paceline.data.source import Part, Source, whole
from paceline.errors import SettingError, refused

_MODES = {1: "L", 3: "RGB"}  # Pillow's names, by channels
_WIDE = ("I", "F")  # beginnings of Pillow's names for more than 8 bits
_READ_AS = 3  # version of how pixels are read; part of the name of prepared files


class ImageFolder(AbstractPreparedImageData):
    """Data set of the files `root/train/<class>/*` and `root/test/<class>/*`.

    Images are resized and centre-cropped to `image_shape`. The validation set consists of the files
    `root/val/<class>/*` if the folder `root/val` exists; `num_validation` is then not used.
    Otherwise `num_validation` images are taken out of the training set for validation. Links are
    followed; files and folders whose names begin with a dot are left out.

    Raises SettingError("data.root") with the name of a file that cannot be decoded, or that has
    grey values of more than 8 bits, whose range is not known. Transparency is ignored.
    """

    name = "image_folder"
    has_files = True

    def require_files(self) -> None:
        for part in ("train", "test"):
            self._require(self.root / part)

    def fingerprint(self) -> list[Any]:
        """Return the image shape, and a digest of the names and bytes of all images."""
        paths = chain.from_iterable(map(_all, self._images.values()))
        root = len(str(self.root / "_")) - 1
        files = {path[root:]: path for path in paths}
        try:
            digest = content_digest(files)
        except OSError as error:
            raise _unreadable(error) from error
        return [_READ_AS, self.image_shape, digest]

    def read(self) -> Source:
        if self.image_shape[0] not in _MODES:
            message = f"{list(self.image_shape)}: 1 or 3 channels can be decoded"
            raise SettingError("data.image_shape", message)
        paths = {part: _all(classes) for part, classes in self._images.items()}
        found = sum(1 for part in paths for _ in files_below(self.root / part))
        if (left_out := found - sum(map(len, paths.values()))) > 0:
            message = f"{left_out} files in {self.root} do not have the suffix of an image"
            print(f"{message}, and are left out", file=sys.stderr, flush=True)
        parts = dict[str, Part]()
        for part, classes in self._images.items():
            if unmatched := sorted(set(classes) ^ set(self._images["train"])):
                message = f"train and {part} differ in classes: {unmatched[:5]}"
                raise SettingError("data.root", message)
            labels = np.repeat(np.arange(len(classes)), [*map(len, classes.values())])
            parts[part] = whole(DecodedFiles(paths[part], self.image_shape), labels)
        num_classes = len(self._images["train"])
        train, test, validation = parts["train"], parts["test"], parts.get("val")
        return Source(train, test, num_classes, self.image_shape, validation)

    def encoded(self) -> Part:
        return self.read().parts(self.num_validation, self.split_seed)["train"]

    @cached_property
    def _images(self) -> dict[str, dict[str, list[str]]]:
        """The images of each class of each part of the data set, by the names of both."""
        parts = ["train", "test", *(["val"] if (self.root / "val").is_dir() else [])]
        try:
            return {part: self._classes(self.root / part) for part in parts}
        except OSError as error:
            raise _unreadable(error) from error

    def _require(self, folder: Path) -> None:
        if not folder.is_dir():
            message = f"no folder {folder}; looked for {self.root}/{{train,test}}/<class>/*"
            raise SettingError("data.root", message)

    def _classes(self, folder: Path) -> dict[str, list[str]]:
        from PIL import Image

        self._require(folder)
        suffixes, found = Image.registered_extensions(), dict[str, list[str]]()
        for each in sorted(folder.iterdir()):
            if each.is_dir() and not each.name.startswith("."):
                found[each.name] = [
                    path
                    for path in files_below(each)
                    if f".{path.rpartition('.')[2]}".lower() in suffixes
                ]
                if not found[each.name]:
                    raise SettingError("data.root", f"{each} has no file with an image's suffix")
        if not found:
            raise SettingError("data.root", f"cannot find any class folder in {folder}")
        return found


def _all(classes: Mapping[str, Sequence[str]]) -> list[str]:
    return [*chain.from_iterable(classes.values())]


def _unreadable(error: OSError) -> SettingError:
    return SettingError("data.root", f"{error.filename}: {error.strerror}")


class DecodedFiles:
    """Image files that are decoded when indexed, on as many threads as there are cores.

    Indexing raises SettingError("data.root") for a file that cannot be decoded.
    """

    def __init__(self, paths: Sequence[str], image_shape: tuple[int, ...]) -> None:
        self._paths, self._image_shape = paths, image_shape

    def __getitem__(self, rows: np.ndarray, /) -> np.ndarray:
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            return np.stack(list(threads.map(self._decode, (self._paths[row] for row in rows))))

    def _decode(self, path: str) -> np.ndarray:
        from PIL import Image, ImageOps

        channels, height, width = self._image_shape
        with refused("data.root", f"{path} cannot be decoded"), Image.open(path) as image:
            if image.mode.startswith(_WIDE):
                raise ValueError("it has more than 8 bits a channel; scale it to 0 to 255")
            ImageOps.exif_transpose(image, in_place=True)
            pixels = image.convert(_MODES[channels])
            fitted = ImageOps.fit(pixels, (width, height), Image.Resampling.BILINEAR)
        return np.asarray(fitted).reshape(height, width, channels).transpose(2, 0, 1)
