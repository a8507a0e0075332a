"""Each kind of pixel that a file may have is read by value and range, or its file is refused."""

import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from paceline.data.image_folder import ImageFolder
from paceline.errors import SettingError
from tests.data.made_data import settings

GREY = np.array([[0, 60, 120, 180]] * 4, dtype=np.uint8)
COLOUR = np.dstack([GREY, 255 - GREY, GREY // 2])


def write(root, image, suffix="png", classes=("cat", "dog"), **options):
    """Write the image 8 times: for training and test, of both classes, two times each."""
    for part in ("train", "test"):
        for name in classes:
            (root / part / name).mkdir(parents=True, exist_ok=True)
            for n in range(2):
                image.save(root / part / name / f"{n}.{suffix}", **options)


def read(root, channels=1, side=4):
    shape = {"image_shape": [channels, side, side], "num_validation": 2}
    return ImageFolder(**settings(root, **shape)).load().test.images[0].numpy()


def paletted(**options):
    image = Image.fromarray(GREY // 60).convert("P")
    image.putpalette([v for n in range(4) for v in (60 * n, 255 - 60 * n, 30 * n)])
    return image, options


def with_alpha(image, alpha):
    image.putalpha(Image.fromarray(np.full_like(GREY, alpha)))
    return image


@pytest.mark.parametrize(
    ("suffix", "dtype"),
    [("png", "uint16"), ("tif", "uint16"), ("tif", ">u2"), ("pgm", "uint16"), ("tif", "int32")],
)
def test_more_than_eight_bits_are_scaled_by_the_range_of_the_whole_set(tmp_path, suffix, dtype):
    write(tmp_path, Image.fromarray((GREY.astype(int) * 10 + 100).astype(dtype)), suffix)
    brightest = Image.fromarray(np.full((4, 4), 2650, dtype))
    brightest.save(tmp_path / f"train/dog/0.{suffix}")
    assert read(tmp_path)[0, 0].tolist() == [0, 60, 120, 180]  # 100 to 2,650 become 0 to 255


def test_files_that_keep_value_and_range_are_read(tmp_path):
    cmyk = np.dstack([255 - COLOUR, np.zeros_like(GREY)])
    palette, _ = paletted()
    for number, (image, channels, suffix, options, near) in enumerate(
        [
            (Image.fromarray(COLOUR), 3, "PNG", {}, 0),
            (with_alpha(Image.fromarray(COLOUR), 255), 3, "png", {}, 0),
            (with_alpha(Image.fromarray(GREY), 255), 1, "png", {}, 0),
            (palette, 3, "png", {}, 0),
            (palette, 3, "png", {"transparency": bytes([255] * 4)}, 0),
            (palette, 3, "png", {"transparency": 9}, 0),  # a colour that no pixel has
            (Image.fromarray(cmyk, "CMYK"), 3, "tif", {}, 0),
            (Image.fromarray(cmyk, "CMYK"), 3, "jpg", {"quality": 100, "subsampling": 0}, 6),
            (Image.fromarray(COLOUR).convert("YCbCr"), 3, "jpg", {"quality": 100}, 90),
            (Image.fromarray(COLOUR), 3, "gif", {}, 0),
        ]
    ):
        root = tmp_path / str(number)
        write(root, image, suffix, **options)
        expected = COLOUR.transpose(2, 0, 1) if channels == 3 else GREY[None]
        distance = np.abs(read(root, channels).astype(int) - expected).max()
        assert distance <= near, (number, suffix, distance)


def test_files_that_would_lose_value_or_range_are_refused_by_name(tmp_path):
    palette, _ = paletted()
    more = [Image.fromarray(GREY), Image.fromarray(GREY[:, ::-1]), Image.fromarray(GREY.T)]
    for number, (image, suffix, options, why) in enumerate(
        [
            (Image.fromarray(GREY.astype(np.float32)), "tif", {}, "floating-point"),
            (Image.fromarray(GREY.astype(np.int32)), "tif", {}, "8 bits and of more"),
            (with_alpha(Image.fromarray(COLOUR), 254), "png", {}, "transparent"),
            (with_alpha(Image.fromarray(GREY), 0), "png", {}, "transparent"),
            (palette, "png", {"transparency": 1}, "transparent"),
            (palette, "png", {"transparency": bytes([255, 9, 255, 255])}, "transparent"),
            (Image.fromarray(COLOUR), "png", {"transparency": (60, 195, 30)}, "transparent"),
            (more[0], "tif", {"save_all": True, "append_images": more[1:]}, "3 images"),
            (more[0], "png", {"save_all": True, "append_images": more[1:]}, "3 images"),
            (
                more[0],
                "webp",
                {"save_all": True, "append_images": more[1:], "lossless": True},
                "3 im",
            ),
            (Image.fromarray(GREY.astype(np.uint16)), "png", {}, "8 bits and of more"),
        ]
    ):
        root = tmp_path / str(number)
        write(root, Image.fromarray(COLOUR), suffix)
        image.save(root / f"test/dog/1.{suffix}", **options)
        with pytest.raises(SettingError, match=rf"data\.root: .*test/dog/1\.{suffix}.*{why}"):
            read(root, 3)
        assert not list((root / "prepared").glob("*/")), number


def deep_png(path, values):
    """Write values [height, width, channels] as a PNG of 16 bits a channel, which Pillow cannot."""
    height, width, channels = values.shape
    kind = {2: 4, 3: 2, 4: 6}[channels]
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    head = struct.pack(">IIBBBBB", width, height, 16, kind, 0, 0, 0)
    chunks = {b"IHDR": head, b"IDAT": zlib.compress(rows), b"IEND": b""}
    with path.open("wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n")
        for name, data in chunks.items():
            check = struct.pack(">I", zlib.crc32(name + data))
            file.write(struct.pack(">I", len(data)) + name + data + check)


def test_colours_of_sixteen_bits_are_refused_by_name(tmp_path):
    """Pillow would keep the high byte: 16 levels of a detector with 12 bits."""
    for channels in (2, 3, 4):
        root = tmp_path / str(channels)
        write(root, Image.fromarray(COLOUR))
        deep_png(root / "train/cat/0.png", np.full((4, 4, channels), 65535))
        with pytest.raises(SettingError, match=r"train/cat/0\.png.* colours of 16 bits"):
            read(root, 3)


def test_eight_bits_among_more_are_refused_by_name(tmp_path):
    write(tmp_path, Image.fromarray(GREY.astype(np.uint16)))
    Image.fromarray(GREY).save(tmp_path / "test/cat/1.png")
    with pytest.raises(SettingError, match=r"test/cat/1\.png.* 8 bits and of more"):
        read(tmp_path)


def test_a_photo_is_read_as_its_orientation_says(tmp_path):
    image, exif = Image.fromarray(GREY), Image.Exif()
    exif[0x0112] = 6  # turned by 90 degrees
    write(tmp_path, image, exif=exif)
    assert read(tmp_path)[0].tolist() == np.rot90(GREY, -1).tolist()
