"""Difference in time between two things that were measured in the same rounds."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import quantile_test

_CONFIDENCE = 0.95


class Difference(NamedTuple):
    """Share by which the other takes longer: median over rounds, and its interval.

    `low`, `high`: of 95 %, by the sign test, which assumes no distribution; None for fewer than
    the six rounds that it needs.
    """

    share: float
    low: float | None
    high: float | None

    @property
    def faster(self) -> bool:
        """Say whether the other is faster, beyond the interval."""
        return self.high is not None and self.high < 0

    @property
    def told_apart(self) -> bool:
        return self.faster or (self.low is not None and self.low > 0)

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{100 * self.share:+.2f} % (too few rounds for an interval)"
        low, high = 100 * self.low, 100 * self.high
        return f"{100 * self.share:+.2f} % ({low:+.2f} to {high:+.2f} %)"


def difference(first: Sequence[float], other: Sequence[float]) -> Difference:
    """Compare by the rounds that both have; the first rounds are those that they share."""
    num_rounds = min(len(first), len(other))
    shares = np.array(other[:num_rounds]) / np.array(first[:num_rounds]) - 1
    low, high = quantile_test(shares, q=0, p=0.5).confidence_interval(_CONFIDENCE)
    interval = (float(low), float(high)) if np.isfinite([low, high]).all() else (None, None)
    return Difference(float(np.median(shares)), *interval)
