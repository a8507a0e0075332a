"""Seeded, stratified division of a training set into training and validation."""

import numpy as np

from paceline.errors import SettingError
from paceline.random_bits import random_permutation


def stratified_split(labels: np.ndarray, num_held_out: int, seed: int) -> tuple[np.ndarray, ...]:
    """(kept, held out): sorted int64 indices into `labels`, disjoint, together all of them.

    Every class gives the same share of its images, to within one image. Raises
    SettingError("data.num_validation") unless each class keeps an image to train on.
    """
    classes, class_sizes = np.unique(labels, return_counts=True)
    num_most = int(len(labels) - len(classes))
    if not 1 <= num_held_out <= num_most:
        raise SettingError(
            "data.num_validation",
            f"{num_held_out} of {len(labels)} training images of {len(classes)} classes cannot be "
            f"held out: 1 to {num_most} can",
        )
    quotas = _quotas(class_sizes, num_held_out)
    held_out = np.zeros(len(labels), dtype=bool)
    for name, quota in zip(classes, quotas, strict=True):
        members = np.flatnonzero(labels == name)
        order = random_permutation(len(members), "split", seed, int(name))
        held_out[members[order[:quota]]] = True
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)


def _quotas(class_sizes: np.ndarray, total: int) -> np.ndarray:
    """Integers in proportion, by largest remainder, that sum to `total`; each class keeps one."""
    shares = class_sizes * (total / class_sizes.sum())
    quotas = np.minimum(np.floor(shares).astype(np.int64), class_sizes - 1)
    while (missing := total - int(quotas.sum())) > 0:
        remainders = np.where(quotas < class_sizes - 1, shares - quotas, -np.inf)
        quotas[np.argsort(-remainders, kind="stable")[:missing]] += 1
        quotas = np.minimum(quotas, class_sizes - 1)
    return quotas
