"""The digest of a data set changes with the content of its files, and with nothing else."""

import os
import shutil
from pathlib import Path

import pytest
from PIL import Image

from paceline.data.content import content_digest
from paceline.data.image_folder import ImageFolder
from paceline.errors import SettingError
from tests.data.made_data import settings, write_image_folder

SIZES = {"image_shape": [3, 4, 4]}
CAT = "test/cat/0.png"


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def photos(tmp_path):
    root = tmp_path / "photos"
    write_image_folder(root)
    Image.open(root / CAT).save(root / CAT, compress_level=0)  # of a size that pixels do not change
    return root


def digest(root: Path) -> object:
    return ImageFolder(**settings(root, **SIZES)).fingerprint()


def recolour(path: Path) -> None:
    """Replace an image by one of other pixels, with the same size in bytes and the same time."""
    before = path.stat()
    image = Image.open(path)
    Image.eval(image, lambda value: 255 - value).save(path, compress_level=0)
    assert path.stat().st_size == before.st_size
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def link(path: Path, target: Path) -> None:
    """Put a link in place of a file or a folder, which becomes `target`."""
    path.rename(target)
    path.symlink_to(target)


@pytest.mark.parametrize("linked", [None, CAT, "test/cat", "test", "."])
def test_changed_pixels_of_the_same_size_and_time_are_read(tmp_path, photos, linked, monkeypatch):
    monkeypatch.setattr("paceline.data.content._FRESH_SECONDS", -1e9)  # so all digests are kept
    if linked:
        link(photos / linked, tmp_path / "elsewhere")
    before, pixels = digest(photos), ImageFolder(**settings(photos, **SIZES)).load().test.images
    assert digest(photos) == before
    assert len(list(Path("runs/.content").iterdir())) == 1
    recolour(photos / CAT)
    assert digest(photos) != before
    assert not ImageFolder(**settings(photos, **SIZES)).load().test.images.equal(pixels)


def test_what_is_no_image_of_the_set_changes_nothing(tmp_path, photos):
    before = digest(photos)
    (photos / "train/cat/notes.txt").write_text("a note")
    (photos / "train/cat/._0.png").write_text("of a file system")
    (photos / "train/.ipynb_checkpoints").mkdir()
    (photos / "labels.csv").write_text("cat, dog")
    write_image_folder(photos / "other")
    (photos / "train/cat/again").symlink_to(".")  # a circle
    for path in photos.rglob("*.png"):
        path.touch()
    assert digest(photos) == before
    shutil.copytree(photos, tmp_path / "copy", symlinks=True)
    assert digest(tmp_path / "copy") == before
    assert len(ImageFolder(**settings(photos, **SIZES)).load().train) == 8


def test_every_change_of_images_is_another_digest(photos):
    found = [digest(photos)]
    for change in (
        lambda: (photos / CAT).rename(photos / "train/dog/9.png"),
        lambda: shutil.copy(photos / "train/cat/1.png", photos / "train/cat/9.png"),
        lambda: (photos / "test/cat/1.png").unlink(),
        lambda: (photos / "test/dog").rename(photos / "test/hound"),
        lambda: shutil.copytree(photos / "train", photos / "val"),
        lambda: (photos / "train/cat/2.png").replace(photos / "train/cat/1.png"),
    ):
        change()
        found.append(digest(photos))
    assert len({str(each) for each in found}) == 7


@pytest.mark.parametrize(
    ("harm", "named"),
    [
        (lambda photos: (photos / CAT).with_name("x.png").symlink_to("none"), r"cat/x\.png: No su"),
        (lambda photos: (photos / CAT).rename((photos / CAT).with_suffix(".PNG")), None),
    ],
)
def test_harmed_files_are_named(photos, harm, named):
    harm(photos)
    if named is None:
        assert len(ImageFolder(**settings(photos, **SIZES)).load().test) == 12
        return
    with pytest.raises(SettingError, match=rf"data\.root: .*{named}"):
        ImageFolder(**settings(photos, **SIZES)).load()


def test_files_that_are_left_out_are_counted(photos, capsys):
    for name in ("cat/notes.txt", "cat/photo.heic", "cat/.hidden", "labels.csv"):
        (photos / "train" / name).touch()
    ImageFolder(**settings(photos, **SIZES)).prepare()
    err = capsys.readouterr().err
    assert f"3 files in {photos} do not have the suffix of an image, and are left out\n" in err


def test_a_digest_of_fresh_files_is_not_kept(photos):
    content_digest({"cat": photos / CAT})
    assert not Path("runs").exists()


def test_data_that_cannot_be_written_are_prepared_in_the_working_directory(photos, monkeypatch):
    monkeypatch.setattr("os.access", lambda path, mode: Path(path) != photos)  # we may be root
    assert len(ImageFolder(**settings(photos, **SIZES)).load().train) == 8
    assert not (photos / "prepared").exists()
    assert len(list(Path("data/prepared").glob("image_folder-*/"))) == 1
