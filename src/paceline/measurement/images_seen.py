"""Counts how many times each training image was in the batches of a run."""

from collections.abc import Iterable, Sequence

import numpy as np

from paceline.data.stream import SampleStream


def images_seen(
    stream: SampleStream, batches: Iterable[tuple[int, int]], *, workers: int, batch_size: int
) -> np.ndarray:
    """Count how many times each image was in `batches`; returns int32 [stream.num_samples].

    A batch is given by its worker and its number among the batches of that worker.
    """
    counts = np.zeros(stream.num_samples, dtype=np.int32)
    for worker, number in batches:
        first = (number * workers + worker) * batch_size
        np.add.at(counts, stream.indices(first, batch_size).numpy(), 1)
    return counts


def num_distinct(
    counts: Sequence[np.ndarray],
    dropped: Sequence[tuple[int, int]],
    *,
    workers: int,
    batch_size: int,
    seed: int,
) -> int:
    """Count the images that remain in `counts` when the batches `dropped` are taken out.

    `counts` has an array per process, as `images_seen` returns it. `seed` is that of the point.
    """
    total = np.sum(counts, axis=0)
    if dropped:
        stream = SampleStream(len(total), seed)
        total = total - images_seen(stream, dropped, workers=workers, batch_size=batch_size)
    return int((total > 0).sum())
