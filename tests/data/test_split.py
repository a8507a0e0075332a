"""Images that are held out, and those of a curve: the same share of each class, by a seed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.data.source import curve_images, stratified_split
from paceline.errors import SettingError

LABELS = np.repeat([0, 1, 2], [50, 30, 20])[::-1].copy()
few = settings(max_examples=60, derandomize=True, database=None, deadline=None)


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


def test_a_split_depends_on_its_seed_alone():
    one, again, other = (stratified_split(LABELS, 20, seed)[1].tolist() for seed in (1, 1, 2))
    assert one == again
    assert one != other


def test_images_of_a_curve_are_the_same_each_time_and_not_the_first_of_each_class():
    chosen = curve_images(LABELS, 20).tolist()
    assert chosen == curve_images(LABELS, 20).tolist() == sorted(chosen)
    firsts = [np.flatnonzero(label == LABELS)[:n] for label, n in enumerate([10, 6, 4])]
    assert chosen != sorted(np.concatenate(firsts).tolist())


@pytest.mark.parametrize("num_held_out", [0, 98])
def test_impossible_sizes_are_refused_by_name(num_held_out):
    with pytest.raises(SettingError, match=r"data\.num_validation: .* 1 to 97 can"):
        stratified_split(LABELS, num_held_out, seed=0)
