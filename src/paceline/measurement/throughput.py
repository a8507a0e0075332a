"""Computes the throughput of all workers without the beginning and the end of a run."""

import numpy as np


def images_per_second(
    step_ends: list[np.ndarray], batch_size: int, warmup_fraction: float
) -> float | None:
    """Return the images per second between the warm-up and the last steps of the run.

    `step_ends` has an array per worker with the times at which its steps ended [seconds since the
    run began]. `warmup_fraction` is the share of all steps that are left out at the beginning, and
    as many at the end, where workers wait for the last steps of others. Steps under way at either
    time count in part: workers in lockstep end some milliseconds apart. The result is None if fewer
    than two steps remain, or if they end together.
    """
    ends = np.sort(np.concatenate(step_ends))
    left_out = int(len(ends) * warmup_fraction)
    timed = ends[left_out : len(ends) - left_out]
    if len(timed) < 2 or timed[-1] <= timed[0]:
        return None
    window = timed[[0, -1]]
    steps = sum(np.diff(np.interp(window, *_progress(each)))[0] for each in step_ends)
    return float(steps) * batch_size / float(timed[-1] - timed[0])


def _progress(step_ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return times, from the beginning of the run, and the number of steps behind each."""
    return np.concatenate([[0.0], step_ends]), np.arange(len(step_ends) + 1.0)
