"""Maps numbers to the real line, where they are averaged and compared, and intervals back.

An interval that is made there ends where its numbers do: no share above 1, no time below 0.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from paceline.analysis.statistics.estimate import Array, Numbers

Map = Callable[[ArrayLike], Array]


@dataclass(frozen=True)
class Space:
    """A monotone map and its inverses.

    `into` maps observations, `back` a mean of mapped ones. `contrast` maps back the difference of
    two means: it is a difference itself, or a ratio, or a ratio of odds.
    """

    into: Map
    back: Map
    contrast: Map


def _real(numbers: ArrayLike) -> Array:
    return np.asarray(numbers, float)


PLAIN = Space(_real, _real, _real)
# Shares whose differences are told in points; the ends of intervals are cut off where shares end.
POINTS = Space(_real, lambda mean: np.clip(mean, 0, 1), lambda mean: np.clip(mean, -1, 1))
DIFFERENCES = Space(_real, lambda mean: np.clip(mean, -1, 1), _real)  # of two shares
COUNTS = Space(_real, lambda mean: np.maximum(mean, 0), _real)  # some of which may be 0
# Times, rates and ratios, all above 0: means are geometric, contrasts are ratios.
POSITIVE = Space(lambda numbers: np.log(_real(numbers)), np.exp, np.exp)


def logit_of(trials: int) -> Space:
    """Return the space of shares of `trials`, such as test images; contrasts are ratios of odds.

    Half a success and half a failure are added to each share, so that 0 and 1 have a place
    (Haldane 1956, Anscombe 1956).
    """

    def into(shares: ArrayLike) -> Array:
        successes = _real(shares) * trials
        return np.log((successes + 0.5) / (trials - successes + 0.5))

    def back(mean: ArrayLike) -> Array:
        return np.clip((expit(mean) * (trials + 1) - 0.5) / trials, 0, 1)

    return Space(into, back, np.exp)


def variance_of_logit(share: Numbers, images: int) -> Numbers:
    """Return the variance of the logit of an accuracy by the draw of the images it is scored on.

    All seeds are scored on the same images, so that the variance between seeds does not contain
    it. It is that of one binomial draw for all seeds, since they agree on most images; where they
    do not, the variance is smaller.
    """
    inner = (np.asarray(share) * images + 0.5) / (images + 1)  # never 0 or 1
    return 1 / (inner * (1 - inner) * images)
