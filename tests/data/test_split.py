import numpy as np
import pytest

from paceline.data.source import curve_images, stratified_split
from paceline.errors import SettingError

LABELS = np.repeat([0, 1, 2], [50, 30, 20])[::-1].copy()


@pytest.mark.parametrize("num_held_out", [1, 7, 20, 50, 97])
def test_split_is_disjoint_complete_and_of_the_size_asked_for(num_held_out):
    kept, held_out = stratified_split(LABELS, num_held_out, seed=0)
    assert len(held_out) == num_held_out
    assert sorted([*kept, *held_out]) == list(range(100))


def test_split_is_stratified():
    _, held_out = stratified_split(LABELS, 20, seed=0)
    assert np.bincount(LABELS[held_out]).tolist() == [10, 6, 4]
    _, held_out = stratified_split(LABELS, 21, seed=0)
    shares = 21 * np.array([0.5, 0.3, 0.2])
    assert (abs(np.bincount(LABELS[held_out]) - shares) < 1).all()


def test_split_depends_on_its_seed_alone():
    one, again, other = (stratified_split(LABELS, 20, seed)[1].tolist() for seed in (1, 1, 2))
    assert one == again
    assert one != other


def test_every_class_keeps_an_image():
    kept, _ = stratified_split(LABELS, 97, seed=0)
    assert sorted(LABELS[kept]) == [0, 1, 2]


@pytest.mark.parametrize("num_held_out", [0, -1, 98, 100, 1000])
def test_impossible_sizes_are_refused_by_name(num_held_out):
    with pytest.raises(SettingError, match=r"data\.num_validation: .* 1 to 97 can"):
        stratified_split(LABELS, num_held_out, seed=0)


@pytest.mark.parametrize("number", [1, 7, 20, 99, 100])
def test_images_of_a_curve_are_stratified(number):
    chosen = curve_images(LABELS, number)
    assert len(set(chosen.tolist())) == len(chosen) == number
    shares = number * np.array([0.5, 0.3, 0.2])
    assert (abs(np.bincount(LABELS[chosen], minlength=3) - shares) < 1).all()


def test_images_of_a_curve_are_the_same_each_time_and_not_the_first_of_each_class():
    chosen = curve_images(LABELS, 20).tolist()
    assert chosen == curve_images(LABELS, 20).tolist() == sorted(chosen)
    firsts = [np.flatnonzero(label == LABELS)[:n] for label, n in enumerate([10, 6, 4])]
    assert chosen != sorted(np.concatenate(firsts).tolist())


def test_more_images_of_a_curve_than_there_are_are_refused_by_name():
    assert curve_images(LABELS, None) is None
    message = r"measurement\.curve_images: 101, but there are 100 validation images"
    with pytest.raises(SettingError, match=message):
        curve_images(LABELS, 101)
