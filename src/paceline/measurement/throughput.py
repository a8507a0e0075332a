"""Computes the throughput of all workers without the warm-up."""

import numpy as np


def images_per_second(
    step_ends: list[np.ndarray], batch_size: int, warmup_fraction: float
) -> float | None:
    """Return the images per second from the end of the warm-up to the end of the run.

    `step_ends` has an array per worker with the times at which its steps ended [seconds]. The
    result is None if fewer than two steps remain after the warm-up, or if they end together.
    """
    ends = np.sort(np.concatenate(step_ends))
    first = int(len(ends) * warmup_fraction)
    timed = ends[first:]
    if len(timed) < 2 or timed[-1] <= timed[0]:
        return None
    # Workers in lockstep end together: all steps that end at the first instant lie before it.
    finished = len(timed) - int(np.searchsorted(timed, timed[0], side="right"))
    return finished * batch_size / float(timed[-1] - timed[0])
