"""Reads images from one folder per class, in any format that Pillow reads."""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
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
_WIDE = "I"  # beginning of Pillow's names for whole grey values of 16 or 32 bits
_SIXTEEN = re.compile(";16[BLN]")  # in Pillow's names for how bytes are read: bits of a channel
_READ_AS = 2  # version of how pixels are read; part of the name of prepared files

Range = tuple[int, int]  # smallest and largest value


class ImageFolder(AbstractPreparedImageData):
    """Data set of the files `root/train/<class>/*` and `root/test/<class>/*`.

    Images are resized and centre-cropped to `image_shape`. The validation set consists of the files
    `root/val/<class>/*` if the folder `root/val` exists; `num_validation` is then not used.
    Otherwise `num_validation` images are taken out of the training set for validation. Links are
    followed; files and folders whose names begin with a dot are left out.

    Grey images of 16 or 32 bits are scaled, so that the smallest and the largest value in all files
    become 0 and 255. Raises SettingError("data.root") with the name of a file that cannot be read
    without loss: floating-point pixels, colours of 16 bits, transparent pixels, several images in a
    file, or files of 8 bits and of more bits in one data set.
    """

    name = "image_folder"
    has_files = True

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
        values, parts = _range([*chain.from_iterable(paths.values())]), dict[str, Part]()
        for part, classes in self._images.items():
            if unmatched := sorted(set(classes) ^ set(self._images["train"])):
                message = f"train and {part} differ in classes: {unmatched[:5]}"
                raise SettingError("data.root", message)
            labels = np.repeat(np.arange(len(classes)), [*map(len, classes.values())])
            parts[part] = whole(DecodedFiles(paths[part], self.image_shape, values), labels)
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

    def _classes(self, folder: Path) -> dict[str, list[str]]:
        from PIL import Image

        if not folder.is_dir():
            message = f"no folder {folder}; looked for {self.root}/{{train,test}}/<class>/*"
            raise SettingError("data.root", message)
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


def _range(paths: Sequence[str]) -> Range | None:
    """Return the smallest and largest value in all images; None if the first one has 8 bits."""
    from PIL import Image

    def extremes(path: str) -> Range:
        with _reading(path), Image.open(path) as image:
            values = np.asarray(image)
            return int(values.min()), int(values.max())

    with _reading(paths[0]), Image.open(paths[0]) as image:
        if not image.mode.startswith(_WIDE):
            return None
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        found = list(threads.map(extremes, paths))
    low, high = min(low for low, _ in found), max(high for _, high in found)
    message = f"images of more than 8 bits: {low:,} to {high:,} become 0 to 255"
    print(message, file=sys.stderr, flush=True)
    return low, high


def _reading(path: str) -> AbstractContextManager[None]:
    """Turn any error inside, which reads an image, into SettingError("data.root")."""
    return refused("data.root", f"{path} cannot be decoded")


class DecodedFiles:
    """Image files that are decoded when indexed, on as many threads as there are cores.

    `values`: the smallest and the largest value of images of more than 8 bits; None for 8 bits.
    Indexing raises SettingError("data.root") for a file that cannot be decoded.
    """

    def __init__(
        self, paths: Sequence[str], image_shape: tuple[int, ...], values: Range | None = None
    ) -> None:
        self._paths, self._image_shape, self._values = paths, image_shape, values

    def __getitem__(self, rows: np.ndarray, /) -> np.ndarray:
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            return np.stack(list(threads.map(self._decode, (self._paths[row] for row in rows))))

    def _decode(self, path: str) -> np.ndarray:
        from PIL import Image, ImageOps

        channels, height, width = self._image_shape
        with _reading(path), Image.open(path) as image:
            pixels = _eight_bits(image, self._values).convert(_MODES[channels])
            fitted = ImageOps.fit(pixels, (width, height), Image.Resampling.BILINEAR)
        return np.asarray(fitted).reshape(height, width, channels).transpose(2, 0, 1)


def _eight_bits(image: Any, values: Range | None) -> Any:
    """Return an opened image, upright, with 8 bits a channel.

    `values`: the values that become 0 and 255; None for an image that has 8 bits already. Raises
    ValueError for an image that would lose more than that.
    """
    from PIL import Image, ImageOps

    if (number := getattr(image, "n_frames", 1)) > 1 and image.format != "MPO":  # of a camera
        raise ValueError(f"it has {number} images")
    if image.mode == "F":
        raise ValueError("it has floating-point pixels, whose range is not known; scale them")
    if not image.mode.startswith(_WIDE) and any(_SIXTEEN.search(str(each)) for each in image.tile):
        raise ValueError("it has colours of 16 bits, of which 8 would be read; make it one of 8")
    if image.mode.startswith(_WIDE) != (values is not None):
        raise ValueError("there are files of 8 bits and of more bits in one data set")
    ImageOps.exif_transpose(image, in_place=True)
    if values is not None:
        low, high = values
        scaled = (np.asarray(image, np.float64) - low) * (255 / max(1, high - low))
        return Image.fromarray(np.rint(scaled).astype(np.uint8))
    if image.has_transparency_data:
        image = image.convert("RGBA")
        if image.getchannel("A").getextrema() != (255, 255):
            raise ValueError("it has transparent pixels, behind which no colour is known")
    return image
