"""Reads Fashion-MNIST in full: 60,000 training and 10,000 test images.

Source: Xiao, Rasul, Vollgraf 2017, arXiv:1708.07747.
"""

import gzip
import hashlib
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import numpy as np

from paceline.data.image_set import Known
from paceline.data.prepared import AbstractPreparedImageData, downloading, require_answer
from paceline.data.source import Part, Source, whole
from paceline.errors import SettingError
from paceline.settings import UNKEYED

# md5 of the unpacked files, since Debian's .gz files differ from the original in the gzip header.
CONTENT_MD5S = {
    "train-images-idx3-ubyte.gz": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
    "train-labels-idx1-ubyte.gz": "9018921c3c673c538a1fc5bad174d6f9",
    "t10k-images-idx3-ubyte.gz": "8181f5470baa50b63fa0f6fddb340f0a",
    "t10k-labels-idx1-ubyte.gz": "15d484375f8d13e6eb1aabb0c3f46965",
}
DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")  # package dataset-fashion-mnist
_TORCHVISION_FOLDER = "FashionMNIST/raw"
_SERVER = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"  # as in torchvision


class FashionMnist(AbstractPreparedImageData):
    """Fashion-MNIST from its four original files.

    The files are searched in `root`, then in the folder of Debian's package. If neither has them,
    they are downloaded into `root`.
    """

    root: Annotated[Path, UNKEYED]

    name = "fashion_mnist"

    @property
    def known(self) -> Known:
        return Known(60_000, 10, (1, 28, 28))

    def fingerprint(self) -> list[str]:
        return list(CONTENT_MD5S.values())

    def require_files(self) -> None:
        if find_files(self.root) is None and not self.folder().exists():
            require_answer(_SERVER, self._looked_for)

    @property
    def _looked_for(self) -> str:
        places = " nor ".join(map(str, _places(self.root)))
        return f"the four files of Fashion-MNIST are neither in {places}"

    def read(self) -> Source:
        folder = find_files(self.root) or self._download()
        train, test = read_part(folder, "train"), read_part(folder, "t10k")
        shape = train.images[train.rows[:1]].shape[1:]
        return Source(train, test, len(np.unique(train.labels)), shape)

    def _download(self) -> Path:
        from torchvision.datasets import FashionMNIST  # 3 s

        folder = Path(_TORCHVISION_FOLDER).parts[0]
        with (
            downloading(self._looked_for),
            TemporaryDirectory(prefix=".download-", dir=self.root) as temporary,
        ):
            FashionMNIST(temporary, download=True)
            (Path(temporary) / folder).rename(self.root / folder)
        return self.root / _TORCHVISION_FOLDER


def _places(root: Path) -> list[Path]:
    return [root, root / _TORCHVISION_FOLDER, DEBIAN_FOLDER]


def find_files(root: Path) -> Path | None:
    """Return the first folder that has the four files, or None."""
    for folder in _places(root):
        if all((folder / name).is_file() for name in CONTENT_MD5S):
            return folder
    return None


def read_part(folder: Path, part: str) -> Part:
    """Read `part`, "train" or "t10k", from the files in `folder`.

    Raises SettingError("data.root") if a file's checksum differs from that of the original file.
    """
    images = _read_idx(folder / f"{part}-images-idx3-ubyte.gz")
    return whole(images[:, None], _read_idx(folder / f"{part}-labels-idx1-ubyte.gz"))


def _read_idx(path: Path) -> np.ndarray:
    """Read a packed file in idx format as a uint8 array, and verify its checksum.

    The header has two zero bytes, a byte for the type of the elements, a byte for the number of
    dimensions, and the size of each dimension as a big-endian int32.
    """
    try:
        content = gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise SettingError("data.root", f"{path} is corrupt: {error}") from error
    md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if md5 != CONTENT_MD5S[path.name]:
        message = f"{path} is corrupt: md5 {md5} unpacked, not {CONTENT_MD5S[path.name]}"
        raise SettingError("data.root", message)
    num_sizes = content[3]
    sizes = np.frombuffer(content, ">i4", count=num_sizes, offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * num_sizes).reshape(sizes)
