"""Writes the JPEGs of the study kumar2017_ablation: `python -m benchmarks.jpegs FOLDER`.

They have the mean size of ImageNet's, 500 x 375 pixels.
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image

IMAGES, CLASSES, WIDTH, HEIGHT = 512, 4, 500, 375


def write_images(root: Path, images: int) -> None:
    """Make JPEGs of smooth colours with some noise, an equal number of each class."""
    drawn = np.random.default_rng(0)
    for part, number in (("train", images), ("val", 2 * CLASSES), ("test", 2 * CLASSES)):
        for n in range(number):
            folder = root / part / f"class{n % CLASSES}"
            folder.mkdir(parents=True, exist_ok=True)
            tiles = drawn.integers(0, 256, (6, 8, 3), dtype=np.uint8)
            tiles[:, :2] = 60 * (n % CLASSES)
            smooth = np.asarray(Image.fromarray(tiles).resize((WIDTH, HEIGHT), Image.BICUBIC))
            noise = drawn.integers(0, 40, smooth.shape, dtype=np.uint8)
            Image.fromarray(smooth // 2 + noise).save(folder / f"{n}.jpg", quality=90)


if __name__ == "__main__":
    write_images(Path(sys.argv[1]), IMAGES)
