"""Images per second over all workers, without warm-up."""

import numpy as np


def images_per_second(
    step_ends: list[np.ndarray], batch_size: int, warmup_fraction: float
) -> float | None:
    """Steps of all workers, by the clock, from the end of the warm-up to the end of the run.

    `step_ends`: per worker, when its steps ended [seconds]. None where fewer than two remain.
    """
    ends = np.sort(np.concatenate(step_ends))
    first = int(len(ends) * warmup_fraction)
    timed = ends[first:]
    if len(timed) < 2 or timed[-1] <= timed[0]:
        return None
    # Workers in lockstep end together: those that share the first instant were before it.
    finished = len(timed) - int(np.searchsorted(timed, timed[0], side="right"))
    return finished * batch_size / float(timed[-1] - timed[0])
