"""Images that are made up, those that are held out, and those of a curve, by a seed."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from paceline.data.source import curve_images, stratified_split
from paceline.data.synthetic import Synthetic
from paceline.errors import SettingError
from tests.data.made_data import settings

LABELS = np.repeat([0, 1, 2], [50, 30, 20])[::-1].copy()
few = examples(max_examples=60, derandomize=True, database=None, deadline=None)


@st.composite
def splits(draw):
    """Labels in any order, and a number of images that can be held out."""
    sizes = draw(st.lists(st.integers(2, 50), min_size=1, max_size=5))
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(len(sizes)), sizes))
    return labels, draw(st.integers(1, len(labels) - len(sizes)))


@few
@given(splits())
def test_a_split_is_complete_disjoint_and_stratified_and_leaves_every_class_an_image(split):
    labels, number = split
    kept, held_out = stratified_split(labels, number, seed=0)
    assert len(held_out) == number
    assert sorted([*kept, *held_out]) == list(range(len(labels)))
    left, total = np.bincount(labels[kept], minlength=1), np.bincount(labels)
    assert left.min() >= 1
    shares = number * total / len(labels)
    assert ((abs(total - left - shares) < 1) | (left == 1)).all()
    chosen = curve_images(labels, number)
    assert len(set(chosen.tolist())) == number
    assert (abs(np.bincount(labels[chosen], minlength=len(total)) - shares) < 1).all()


def test_images_of_a_curve_are_the_same_each_time_and_not_the_first_of_each_class():
    chosen = curve_images(LABELS, 20).tolist()
    assert chosen == curve_images(LABELS, 20).tolist() == sorted(chosen)
    firsts = [np.flatnonzero(label == LABELS)[:n] for label, n in enumerate([10, 6, 4])]
    assert chosen != sorted(np.concatenate(firsts).tolist())


@pytest.mark.parametrize("num_held_out", [0, 98])
def test_impossible_sizes_are_refused_by_name(num_held_out):
    with pytest.raises(SettingError, match=r"data\.num_validation: .* 1 to 97 can"):
        stratified_split(LABELS, num_held_out, seed=0)


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


def test_no_image_is_one_of_another_part():
    splits = make().load()
    assert not splits.train.images[:50].equal(splits.test.images)


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
