"""How often each training image was in the batches of a run."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from paceline.data.stream import SampleStream


def images_seen(
    stream: SampleStream, batches: Iterable[tuple[int, int]], *, workers: int, batch_size: int
) -> np.ndarray:
    """`batches`: worker, and number of the batch among its own. int32 [stream.num_samples]."""
    counts = np.zeros(stream.num_samples, dtype=np.int32)
    for worker, turn in batches:
        first = (turn * workers + worker) * batch_size
        np.add.at(counts, stream.indices(first, batch_size).numpy(), 1)
    return counts


def num_distinct(
    counts: Sequence[np.ndarray], dropped: Sequence[tuple[int, int]], config: dict[str, Any]
) -> int:
    """Images in the batches that are counted in any of `counts`, without those `dropped`."""
    total = np.sum(counts, axis=0)
    if dropped:
        sizes = {name: config[name] for name in ("workers", "batch_size")}
        total = total - images_seen(SampleStream(len(total), config["seed"]), dropped, **sizes)
    return int((total > 0).sum())
