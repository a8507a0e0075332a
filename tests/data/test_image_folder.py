import shutil

import pytest
from PIL import Image

from paceline.data.image_folder import ImageFolder
from paceline.errors import SettingError
from tests.data.made_data import settings, write_image_folder

SIZES = {"image_shape": [3, 4, 4]}


def test_images_are_resized_and_centre_cropped_to_the_shape(tmp_path):
    write_image_folder(tmp_path)
    splits = ImageFolder(**settings(tmp_path, **SIZES)).load()
    assert [len(s) for s in (splits.train, splits.validation, splits.test)] == [8, 4, 12]
    assert splits.test.images.shape == (12, 3, 4, 4)
    colours = splits.test.images.flatten(1)
    assert colours.equal(colours[:, :1].expand(-1, 48))  # the black border is cropped away
    assert colours[:, 0].tolist() == [100 * c + n for c in (1, 2) for n in range(6)]
    assert splits.test.labels.tolist() == [0] * 6 + [1] * 6


def test_one_channel_is_grey(tmp_path):
    write_image_folder(tmp_path)
    splits = ImageFolder(**settings(tmp_path, image_shape=[1, 4, 4])).load()
    assert splits.test.images[:6, 0, 0, 0].tolist() == [100 + n for n in range(6)]


def test_validation_folder_is_used_where_it_exists(tmp_path):
    write_image_folder(tmp_path, parts=("train", "val", "test"))
    splits = ImageFolder(**settings(tmp_path, **SIZES)).load()
    assert [len(s) for s in (splits.train, splits.validation, splits.test)] == [12, 12, 12]


def test_changed_files_are_decoded_again(tmp_path):
    write_image_folder(tmp_path)
    ImageFolder(**settings(tmp_path, **SIZES)).prepare()
    Image.new("RGB", (12, 8), (7, 8, 9)).save(tmp_path / "test/cat/0.png")
    images = ImageFolder(**settings(tmp_path, **SIZES)).load().test.images
    assert images[0, :, 0, 0].tolist() == [7, 8, 9]


@pytest.mark.parametrize("missing", ["train", "test"])
def test_wrong_folder_says_what_was_looked_for_where(tmp_path, missing):
    write_image_folder(tmp_path)
    shutil.rmtree(tmp_path / missing)
    with pytest.raises(SettingError, match=rf"data\.root: no folder .*{missing}; looked for"):
        ImageFolder(**settings(tmp_path, **SIZES)).load()


def test_one_class_only_is_refused(tmp_path):
    write_image_folder(tmp_path, classes=("cat",))
    with pytest.raises(SettingError, match=r"data\.root: .* one class only"):
        ImageFolder(**settings(tmp_path, **SIZES)).load()


def test_no_class_and_empty_class_are_refused(tmp_path):
    write_image_folder(tmp_path)
    (tmp_path / "train/empty").mkdir()
    with pytest.raises(SettingError, match=r"data\.root: .*empty"):
        ImageFolder(**settings(tmp_path, **SIZES)).load()
    shutil.rmtree(tmp_path / "train")
    (tmp_path / "train").mkdir()
    with pytest.raises(SettingError, match=r"data\.root: .*find any class folder"):
        ImageFolder(**settings(tmp_path, **SIZES)).load()


def test_other_classes_in_test_are_refused(tmp_path):
    write_image_folder(tmp_path, parts=("train",))
    write_image_folder(tmp_path, parts=("test",), classes=("cat", "horse"))
    with pytest.raises(SettingError, match=r"train and test differ in classes: \['dog', 'horse'\]"):
        ImageFolder(**settings(tmp_path, **SIZES)).load()


@pytest.mark.parametrize("damage", [lambda b: b"nonsense", lambda b: b[: len(b) // 2]])
def test_corrupt_image_is_named_and_leaves_nothing(tmp_path, damage):
    write_image_folder(tmp_path)
    path = tmp_path / "train/dog/3.png"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(SettingError, match=r"data\.root: .*dog/3\.png cannot be decoded"):
        ImageFolder(**settings(tmp_path, **SIZES)).load()
    assert [left.suffix for left in (tmp_path / "prepared").iterdir()] == [".lock"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"num_classes": 1000}, r"data\.num_classes: 1000, but .* has 2 classes"),
        ({"image_shape": [2, 4, 4]}, r"data\.image_shape: .* 1 or 3 channels"),
        ({"num_validation": 11}, r"data\.num_validation: 11 of 12"),
    ],
)
def test_settings_that_do_not_fit_are_refused_by_name(tmp_path, wrong, message):
    write_image_folder(tmp_path)
    with pytest.raises(SettingError, match=message):
        ImageFolder(**settings(tmp_path, **{**SIZES, **wrong})).load()
