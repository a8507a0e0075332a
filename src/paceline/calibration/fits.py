"""Fits of costs to the seconds that messages took."""

from collections.abc import Sequence
from statistics import fmean, median

WEIGHT_BYTES = 4  # float32

Times = dict[int, float]  # seconds by number of weights


def line_through(times: Times) -> tuple[float, float]:
    """Fit seconds = fixed + per_byte * bytes through the fastest and the largest message.

    Returns (fixed, per_byte), neither negative. The fastest message is the best estimate of the
    fixed cost: a smaller message that took longer was delayed by something else.
    """
    many = max(times)
    few = min((size for size in times if size < many), key=times.__getitem__)
    per_byte = max(0.0, (times[many] - times[few]) / ((many - few) * WEIGHT_BYTES))
    return max(0.0, times[few] - per_byte * few * WEIGHT_BYTES), per_byte


def link_of(fixed: float, per_byte: float) -> tuple[float, float]:
    """Return (latency, seconds per byte) of one direction; a push and its answer take both."""
    return fixed / 2, per_byte / 2


def allreduce_link_of(fixed: float, per_byte: float, cores: int) -> tuple[float, float]:
    """Return (latency, seconds per byte) of gloo's messages.

    They are derived from the costs of native all-reduces between two workers, in two rounds, whose
    bytes cores must be free to pass; the cost formula of the native collective says how they add
    up.
    """
    return fixed / 2, per_byte / max(1, 2 / cores)


def added_by(seconds: Sequence[float], block: int) -> float:
    """Return what an exchange adds to a step, if every other `block` of the steps has one.

    It is the median over pairs of adjacent blocks of the difference of their means, since other
    guests of a host come and go.
    """
    means = [fmean(seconds[at : at + block]) for at in range(0, len(seconds) - block + 1, block)]
    return max(0.0, median(b - a for a, b in zip(means[::2], means[1::2], strict=False)))
