"""Draws images by a seed, stratified by class: those to validate on, and some of those."""

import numpy as np

from paceline.errors import SettingError
from paceline.random_bits import random_permutation


def stratified_split(labels: np.ndarray, num_held_out: int, seed: int) -> tuple[np.ndarray, ...]:
    """Return the indices into `labels` to train on and those held out.

    Both are sorted int64 arrays; they are disjoint and together cover all of `labels`. Each class
    contributes the same share of its images, to within one image. Raises
    SettingError("data.num_validation") unless each class keeps an image to train on.
    """
    classes, class_sizes = np.unique(labels, return_counts=True)
    largest = int(len(labels) - len(classes))
    if not 1 <= num_held_out <= largest:
        raise SettingError(
            "data.num_validation",
            f"{num_held_out} of {len(labels)} training images of {len(classes)} classes cannot be "
            f"held out: 1 to {largest} can",
        )
    held_out = _drawn(labels, _quotas(class_sizes, class_sizes - 1, num_held_out), "split", seed)
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)


def curve_images(labels: np.ndarray, number: int | None) -> np.ndarray | None:
    """Return the indices into the validation `labels` of the images that intermediate scores use.

    They are sorted int64, the same in each run; None stands for all. Each class contributes the
    same share of its images, to within one image. Raises SettingError("measurement.curve_images")
    for more images than there are.
    """
    if number is None:
        return None
    if number > len(labels):
        message = f"{number}, but there are {len(labels)} validation images"
        raise SettingError("measurement.curve_images", message)
    _, class_sizes = np.unique(labels, return_counts=True)
    return np.flatnonzero(_drawn(labels, _quotas(class_sizes, class_sizes, number), "curve", 0))


def _drawn(labels: np.ndarray, quotas: np.ndarray, *key: int | str) -> np.ndarray:
    """Draw as many images of each class as its quota; returns bool [len(labels)]."""
    drawn = np.zeros(len(labels), dtype=bool)
    for label, quota in zip(np.unique(labels), quotas, strict=True):
        members = np.flatnonzero(labels == label)
        order = random_permutation(len(members), *key, int(label))
        drawn[members[order[:quota]]] = True
    return drawn


def _quotas(class_sizes: np.ndarray, most: np.ndarray, total: int) -> np.ndarray:
    """Apportion `total` to the classes in proportion to their sizes, by largest remainder.

    Returns int64 [classes], of which none exceeds `most`.
    """
    shares = class_sizes * (total / class_sizes.sum())
    quotas = np.minimum(np.floor(shares).astype(np.int64), most)
    while (missing := total - int(quotas.sum())) > 0:
        remainders = np.where(quotas < most, shares - quotas, -np.inf)
        quotas[np.argsort(-remainders, kind="stable")[:missing]] += 1
        quotas = np.minimum(quotas, most)
    return quotas
