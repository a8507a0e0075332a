"""Divides a training set into training and validation by a seed, stratified by class."""

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
    quotas = _quotas(class_sizes, num_held_out)
    held_out = np.zeros(len(labels), dtype=bool)
    for label, quota in zip(classes, quotas, strict=True):
        members = np.flatnonzero(labels == label)
        order = random_permutation(len(members), "split", seed, int(label))
        held_out[members[order[:quota]]] = True
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)


def _quotas(class_sizes: np.ndarray, total: int) -> np.ndarray:
    """Apportion `total` to the classes in proportion to their sizes, by largest remainder.

    Returns int64 [classes]; each class keeps at least one image.
    """
    shares = class_sizes * (total / class_sizes.sum())
    quotas = np.minimum(np.floor(shares).astype(np.int64), class_sizes - 1)
    while (missing := total - int(quotas.sum())) > 0:
        remainders = np.where(quotas < class_sizes - 1, shares - quotas, -np.inf)
        quotas[np.argsort(-remainders, kind="stable")[:missing]] += 1
        quotas = np.minimum(quotas, class_sizes - 1)
    return quotas
