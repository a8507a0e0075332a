"""Decodes a data set once into uncompressed files, which all workers of a machine share."""

import contextlib
import hashlib
import json
import os
import shutil
import socket
import sys
from abc import abstractmethod
from collections.abc import Generator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
from filelock import FileLock

from paceline.data.image_set import AbstractImageData, ImageSet, Splits
from paceline.data.source import ChannelStatistics, Part, Source
from paceline.errors import SettingError

_FORMAT = 1  # version of the prepared files; part of their folder's name
_DESCRIPTION = "description.json"
_ELSEWHERE = Path("data/prepared")  # for a root that cannot be written


class AbstractPreparedImageData(AbstractImageData):
    """Base class of data sets that are decoded once, into files that are mapped into memory.

    The decoded files are in `<root>/prepared/<name>-<digest>/`, or in `data/prepared/` of the
    working directory where `root` cannot be written. This folder gets its name when it is complete.
    The digest is of the source's content and the settings of the split, so that a changed source or
    setting gets a folder of its own. Workers share the mapped pages: further workers need no more
    memory.
    """

    name: str

    @abstractmethod
    def fingerprint(self) -> object:
        """Return a value that changes with the content of the source, and that JSON can hold.

        The method must be fast, since every process calls it; for files, see `content_digest`.
        """

    @abstractmethod
    def read(self) -> Source:
        """Read and verify the source; this may be slow.

        Raises SettingError if the source is missing or damaged.
        """

    def prepare(self) -> None:
        self._prepared()

    def load(self) -> Splits:
        folder, description = self._prepared()
        with _undamaged(folder):
            sets = {name: _map_split(folder, name) for name in ("train", "validation", "test")}
        return Splits(**sets, mean=tuple(description["mean"]), std=tuple(description["std"]))

    def folder(self) -> Path:
        """Return the folder of decoded files, which may not exist yet."""
        content = [_FORMAT, self.fingerprint(), self.num_validation, self.split_seed]
        digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()[:12]
        folder = self.root / "prepared" / f"{self.name}-{digest}"
        if not folder.exists() and self.root.is_dir() and not os.access(self.root, os.W_OK):
            folder = _ELSEWHERE / folder.name
        return folder

    def _prepared(self) -> tuple[Path, dict[str, Any]]:
        """Return the folder of decoded files and its description; make the folder if necessary."""
        folder = self.folder()
        if not folder.exists():
            self._make_folder(folder)
        with _undamaged(folder):
            description = json.loads((folder / _DESCRIPTION).read_text())
        self.check(description["num_classes"], description["image_shape"], folder)
        return folder, description

    def _make_folder(self, folder: Path) -> None:
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(folder.with_suffix(".lock")):
                if not folder.exists():
                    self._write_folder(folder)
        except OSError as error:
            raise SettingError("data.root", f"cannot make {folder}: {error}") from error

    def _write_folder(self, folder: Path) -> None:
        source = self.read()
        self.check(source.num_classes, source.image_shape, self.name)
        parts = source.parts(self.num_validation, self.split_seed)
        partial = folder.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)  # left by a process that was killed
        partial.mkdir()
        try:
            _write_files(partial, source, parts, progress=f"preparing {self.name} in {folder}")
            partial.rename(folder)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise


def _write_files(folder: Path, source: Source, parts: dict[str, Part], progress: str) -> None:
    statistics = ChannelStatistics(source.image_shape[0])
    for name, part in parts.items():
        print(f"{progress}: {len(part.rows):,} {name} images", file=sys.stderr, flush=True)
        np.save(folder / f"{name}_labels.npy", part.labels)
        shape = (len(part.rows), *source.image_shape)
        header = {"descr": "|u1", "fortran_order": False, "shape": shape}
        with (folder / f"{name}_images.npy").open("wb") as file:  # a map: SIGBUS on a full disk
            np.lib.format.write_array_header_1_0(file, header)
            for images in part.chunks():
                file.write(images.tobytes())
                if name == "train":
                    statistics.add(images)
    mean, std = statistics.mean_and_std()
    description = {  # mean, std: per channel, on the scale 0 to 1
        "num_classes": source.num_classes,
        "image_shape": source.image_shape,
        "mean": mean,
        "std": std,
    }
    (folder / _DESCRIPTION).write_text(json.dumps(description))


@contextlib.contextmanager
def _undamaged(folder: Path) -> Generator[None]:
    """Turn errors of the code inside, which reads files of `folder`, into a SettingError."""
    try:
        yield
    except (OSError, ValueError, EOFError) as error:
        message = f"{folder} is damaged ({error}): delete it to make it again"
        raise SettingError("data.root", message) from error


def _map_split(folder: Path, name: str) -> ImageSet:
    """Map the images and labels of one split.

    The mapping is copy-on-write, because torch warns of read-only arrays. Workers share its pages
    as long as no worker writes to them.
    """
    import torch  # takes seconds, and settings are checked without it

    images, labels = (
        torch.from_numpy(np.load(folder / f"{name}_{kind}.npy", mmap_mode="c"))
        for kind in ("images", "labels")
    )
    return ImageSet(images, labels, partial(_map_split, folder, name))


_SILENCE_SECONDS = 10  # without a byte from the server; torchvision would wait for ever


@contextlib.contextmanager
def downloading(looked_for: str) -> Generator[None]:
    """Turn errors of the code inside, which lets torchvision download files, into a SettingError.

    Its message begins with `looked_for`, a text that says what files are missing. What the code
    prints goes to stderr.
    """
    timeout = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_SILENCE_SECONDS)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except (OSError, RuntimeError) as error:
        message = f"{looked_for}, and the download failed: {error}; put them there, or choose "
        message += "data=fashion_mnist_subset, which comes with Paceline"
        raise SettingError("data.root", message) from error
    finally:
        socket.setdefaulttimeout(timeout)


def require_answer(server: str, looked_for: str) -> None:
    """Raise the SettingError of `downloading` if a server, by its address, does not answer.

    Torchvision, which downloads files from it, takes seconds to import.
    """
    with downloading(looked_for), contextlib.suppress(HTTPError):  # which is an answer
        urlopen(Request(server, method="HEAD")).close()
