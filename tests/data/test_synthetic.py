import pytest
import torch

from paceline.data.synthetic import Synthetic
from paceline.errors import SettingError
from tests.data.made_data import settings


def make(**others) -> Synthetic:
    sizes = {"num_train": 200, "num_test": 50, "seed": 0, "num_classes": 5, "num_validation": 50}
    return Synthetic(**settings("unused", **{**sizes, **others}))


@pytest.mark.parametrize("shape", [[1, 1, 1], [3, 7, 11], [2, 28, 28]])
def test_any_shape(shape):
    splits = make(image_shape=shape).load()
    assert splits.train.images.shape == (150, *shape)
    assert splits.train.labels.bincount().tolist() == [30] * 5
    assert splits.validation.labels.bincount().tolist() == [10] * 5
    assert len(splits.test) == 50


def test_images_depend_on_the_seed_alone():
    one, again, other = (make(seed=seed).load().train.images for seed in (1, 1, 2))
    assert one.equal(again)
    assert not one.equal(other)
    assert not one[:50].equal(make(seed=1).load().test.images)


def test_classes_can_be_learned():
    splits = make(image_shape=[1, 8, 8]).load()
    pixels, labels = splits.train.images.flatten(1).float(), splits.train.labels
    means = torch.stack([pixels[labels == c].mean(0) for c in range(5)])
    nearest = torch.cdist(splits.test.images.flatten(1).float(), means).argmin(1)
    assert (nearest == splits.test.labels).float().mean() > 0.95


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"num_classes": 1}, r"data\.num_classes: 1: at least 2"),
        ({"num_train": 3}, r"data\.num_train: 3 images of 5 classes"),
    ],
)
def test_settings_that_do_not_fit_are_refused_by_name(wrong, message):
    with pytest.raises(SettingError, match=message):
        make(**wrong).load()
