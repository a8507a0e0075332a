"""Folders of images: what is read, what is refused, and when the digest of the content changes."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from paceline.data.content import content_digest
from paceline.data.image_folder import ImageFolder
from paceline.errors import SettingError
from tests.data.made_data import settings, write_image_folder

CAT = "test/cat/0.png"
GREY = np.array([[0, 60, 120, 180]] * 4, dtype=np.uint8)
COLOUR = np.dstack([GREY, 255 - GREY, GREY // 2])


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def photos(tmp_path):
    root = tmp_path / "photos"
    write_image_folder(root)
    Image.open(root / CAT).save(root / CAT, compress_level=0)  # of a size that pixels do not change
    return root


def folder(root, **others):
    return ImageFolder(**settings(root, **{"image_shape": [3, 4, 4], **others}))


def test_images_are_resized_and_centre_cropped_to_the_shape(photos):
    splits = folder(photos).load()
    assert [len(s) for s in (splits.train, splits.validation, splits.test)] == [8, 4, 12]
    assert splits.test.images.shape == (12, 3, 4, 4)
    colours = splits.test.images.flatten(1)
    assert colours.equal(colours[:, :1].expand(-1, 48))  # the black border is cropped away
    assert colours[:, 0].tolist() == [100 * c + n for c in (1, 2) for n in range(6)]
    assert splits.test.labels.tolist() == [0] * 6 + [1] * 6
    grey = folder(photos, image_shape=[1, 4, 4]).load()
    assert grey.test.images[:6, 0, 0, 0].tolist() == [100 + n for n in range(6)]


def test_a_validation_folder_is_used_where_it_exists(photos):
    shutil.copytree(photos / "test", photos / "val")
    splits = folder(photos).load()
    assert [len(s) for s in (splits.train, splits.validation, splits.test)] == [12, 12, 12]


def empty(path):
    shutil.rmtree(path)
    path.mkdir()


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda root: shutil.rmtree(root / "train"), "no folder .*train; looked for"),
        (lambda root: shutil.rmtree(root / "test"), "no folder .*test; looked for"),
        (lambda root: empty(root / "train"), "find any class folder"),
        (lambda root: (root / "train/empty").mkdir(), "empty"),
        (
            lambda root: (root / "test/dog").rename(root / "test/horse"),
            r"train and test differ in classes: \['dog', 'horse'\]",
        ),
        (lambda root: [shutil.rmtree(dogs) for dogs in root.glob("*/dog")], "one class only"),
        (lambda root: (root / "test/cat/x.png").symlink_to("none"), r"cat/x\.png: No such"),
    ],
)
def test_folders_that_are_no_data_set_are_refused(photos, harm, message):
    harm(photos)
    with pytest.raises(SettingError, match=rf"data\.root: .*{message}"):
        folder(photos).load()


@pytest.mark.parametrize(
    "damage", [lambda _: b"", lambda _: b"nonsense", lambda b: b[: len(b) // 2]]
)
def test_a_corrupt_image_is_named_and_leaves_nothing(photos, damage):
    path = photos / "train/dog/3.png"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(SettingError, match=r"data\.root: .*dog/3\.png cannot be decoded"):
        folder(photos).load()
    assert [left.suffix for left in (photos / "prepared").iterdir()] == [".lock"]


def test_other_numbers_of_channels_are_refused(photos):
    with pytest.raises(SettingError, match=r"data\.image_shape: .* 1 or 3 channels"):
        folder(photos, image_shape=[2, 4, 4]).load()


def paletted():
    image = Image.fromarray(GREY // 60).convert("P")
    image.putpalette([v for n in range(4) for v in (60 * n, 255 - 60 * n, 30 * n)])
    return image


@pytest.mark.parametrize(
    ("image", "suffix", "expected"),
    [
        (Image.fromarray(COLOUR), "png", COLOUR),
        (Image.fromarray(np.dstack([COLOUR, GREY])), "png", COLOUR),
        (paletted(), "png", COLOUR),
        (Image.fromarray(np.dstack([255 - COLOUR, GREY * 0]), "CMYK"), "tif", COLOUR),
        (Image.fromarray(GREY), "gif", np.dstack([GREY] * 3)),
    ],
)
def test_each_kind_of_eight_bit_image_is_read(photos, image, suffix, expected):
    (photos / CAT).unlink()
    image.save((photos / CAT).with_suffix(f".{suffix}"))
    assert np.array_equal(folder(photos).load().test.images[0], expected.transpose(2, 0, 1))


@pytest.mark.parametrize("dtype", ["uint16", "int32", "float32"])
def test_more_than_eight_bits_are_refused_by_name(photos, dtype):
    Image.fromarray(GREY.astype(dtype)).save(photos / "test/dog/1.tif")
    with pytest.raises(SettingError, match=r"data\.root: .*test/dog/1\.tif.* 8 bits"):
        folder(photos).load()


def test_a_photo_is_read_as_its_orientation_says(photos):
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by 90 degrees
    Image.fromarray(GREY).save(photos / CAT, exif=exif)
    images = folder(photos, image_shape=[1, 4, 4]).load().test.images
    assert images[0, 0].tolist() == np.rot90(GREY, -1).tolist()


def recolour(path: Path) -> None:
    """Replace an image by one of other pixels, with the same size in bytes and the same time."""
    before = path.stat()
    image = Image.open(path)
    Image.eval(image, lambda value: 255 - value).save(path, compress_level=0)
    assert path.stat().st_size == before.st_size
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("linked", [None, CAT, "test/cat", "test", "."])
def test_changed_pixels_of_the_same_size_and_time_are_read(tmp_path, photos, linked, monkeypatch):
    monkeypatch.setattr("paceline.data.content._FRESH_SECONDS", -1e9)  # so all digests are kept
    if linked:
        (photos / linked).rename(tmp_path / "elsewhere")
        (photos / linked).symlink_to(tmp_path / "elsewhere")
    before, pixels = folder(photos).fingerprint(), folder(photos).load().test.images
    assert folder(photos).fingerprint() == before
    assert len(list(Path("runs/.content").iterdir())) == 1
    recolour(photos / CAT)
    assert folder(photos).fingerprint() != before
    assert not folder(photos).load().test.images.equal(pixels)


def test_what_is_no_image_of_the_set_changes_nothing_and_is_counted(tmp_path, photos, capsys):
    before = folder(photos).fingerprint()
    for name in ("cat/notes.txt", "cat/photo.heic", "cat/._0.png", "labels.csv"):
        (photos / "train" / name).touch()
    (photos / "train/.ipynb_checkpoints").mkdir()
    write_image_folder(photos / "other")
    (photos / "train/cat/again").symlink_to(".")  # a circle
    for path in photos.rglob("*.png"):
        path.touch()
    assert folder(photos).fingerprint() == before
    shutil.copytree(photos, tmp_path / "copy", symlinks=True)
    assert folder(tmp_path / "copy").fingerprint() == before
    assert len(folder(photos).load().train) == 8
    err = capsys.readouterr().err
    assert f"3 files in {photos} do not have the suffix of an image, and are left out\n" in err


def test_every_change_of_images_is_another_digest(photos):
    found = [folder(photos).fingerprint()]
    for change in (
        lambda: (photos / CAT).rename(photos / "train/dog/9.png"),
        lambda: shutil.copy(photos / "train/cat/1.png", photos / "train/cat/9.png"),
        lambda: (photos / "test/cat/1.png").unlink(),
        lambda: (photos / "test/dog").rename(photos / "test/hound"),
        lambda: shutil.copytree(photos / "train", photos / "val"),
        lambda: (photos / "train/cat/2.png").replace(photos / "train/cat/1.png"),
    ):
        change()
        found.append(folder(photos).fingerprint())
    assert len({str(each) for each in found}) == 7


def test_a_digest_of_fresh_files_is_not_kept(photos):
    content_digest({"cat": photos / CAT})
    assert not Path("runs").exists()


def test_data_that_cannot_be_written_are_prepared_in_the_working_directory(photos, monkeypatch):
    monkeypatch.setattr("os.access", lambda path, mode: Path(path) != photos)  # we may be root
    assert len(folder(photos).load().train) == 8
    assert not (photos / "prepared").exists()
    assert len(list(Path("data/prepared").glob("image_folder-*/"))) == 1
