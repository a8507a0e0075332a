"""Counts how many times each training image was in the batches of a run."""

from collections.abc import Iterable, Sequence

import numpy as np

from paceline.data.order import AbstractOrder


def images_seen(order: AbstractOrder, batches: Iterable[tuple[int, int]]) -> np.ndarray:
    """Count how many times each image was in `batches`; returns int32 [order.num_samples].

    A batch is given by its worker and its number among the batches of that worker.
    """
    counts = np.zeros(order.num_samples, dtype=np.int32)
    for worker, number in batches:
        np.add.at(counts, order.indices(worker, number).numpy(), 1)
    return counts


def num_distinct(
    counts: Sequence[np.ndarray], dropped: Sequence[tuple[int, int]], order: AbstractOrder
) -> int:
    """Count the images that remain in `counts` when the batches `dropped` are taken out.

    `counts` has an array per process, as `images_seen` returns it. `order` is that of the run.
    """
    total = np.sum(counts, axis=0)
    if dropped:
        total = total - images_seen(order, dropped)
    return int((total > 0).sum())
