"""Make the embedded subset from the original files: `python scripts/make_fashion_mnist_subset.py`.

Reproducible: the pixels always, the file bit for bit where Python has the usual zlib.
"""

from pathlib import Path

import numpy as np

from paceline.data.fashion_mnist import find_files, read_part
from paceline.data.fashion_mnist_subset import SUBSET_FILE
from paceline.data.source import stratified_split

SIZES = {"train": ("train", 12_000), "test": ("t10k", 2_000)}
LICENCE = """The MIT License (MIT)

Copyright (c) 2017 Zalando SE, https://tech.zalando.com

Permission is hereby granted, free of charge, to any person obtaining a copy of this software and
associated documentation files (the "Software"), to deal in the Software without restriction,
including without limitation the rights to use, copy, modify, merge, publish, distribute,
sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial
portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT
NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND
NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES
OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN
CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
"""


def subset(folder: Path) -> dict[str, np.ndarray]:
    """`<part>_images` uint8 [N, 1, 28, 28] and `<part>_labels` uint8 [N], and the licence."""
    arrays = {"licence": np.array(LICENCE)}
    for name, (prefix, size) in SIZES.items():
        part = read_part(folder, prefix)
        _, chosen = stratified_split(part.labels, size, seed=0)
        arrays[f"{name}_images"] = part.images[chosen]
        arrays[f"{name}_labels"] = part.labels[chosen].astype(np.uint8)
    return arrays


def main() -> None:
    folder = find_files(Path("data"))
    if folder is None:
        raise SystemExit("the original files of Fashion-MNIST are neither in data/ nor installed")
    np.savez_compressed(SUBSET_FILE, **subset(folder))
    print(f"{SUBSET_FILE}: {SUBSET_FILE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
