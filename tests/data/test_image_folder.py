import shutil

import pytest

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


def without(part):
    return lambda root: shutil.rmtree(root / part)


def without_classes(root):
    shutil.rmtree(root / "train")
    (root / "train").mkdir()


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (without("train"), "no folder .*train; looked for"),
        (without("test"), "no folder .*test; looked for"),
        (without_classes, ".*find any class folder"),
        (lambda root: (root / "train/empty").mkdir(), ".*empty"),
        (
            lambda root: (root / "test/dog").rename(root / "test/horse"),
            r"train and test differ in classes: \['dog', 'horse'\]",
        ),
        (lambda root: [shutil.rmtree(dogs) for dogs in root.glob("*/dog")], ".* one class only"),
    ],
)
def test_folders_that_are_no_data_set_are_refused(tmp_path, harm, message):
    write_image_folder(tmp_path)
    harm(tmp_path)
    with pytest.raises(SettingError, match=rf"data\.root: .*{message}"):
        ImageFolder(**settings(tmp_path, **SIZES)).load()


@pytest.mark.parametrize(
    "damage", [lambda _: b"", lambda _: b"nonsense", lambda b: b[: len(b) // 2]]
)
def test_corrupt_image_is_named_and_leaves_nothing(tmp_path, damage):
    write_image_folder(tmp_path)
    path = tmp_path / "train/dog/3.png"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(SettingError, match=r"data\.root: .*dog/3\.png cannot be decoded"):
        ImageFolder(**settings(tmp_path, **SIZES)).load()
    assert [left.suffix for left in (tmp_path / "prepared").iterdir()] == [".lock"]


def test_other_numbers_of_channels_are_refused(tmp_path):
    write_image_folder(tmp_path)
    with pytest.raises(SettingError, match=r"data\.image_shape: .* 1 or 3 channels"):
        ImageFolder(**settings(tmp_path, image_shape=[2, 4, 4])).load()
