"""Intervals of predicted images/s, by what the model was off for numbers that it was not fitted to.

An interval is the prediction divided and multiplied by one factor. This is split conformal
prediction (Vovk, Gammerman, Shafer 2005) on the absolute logarithms of observed / predicted, with
equal weight for each experiment, since the numbers of one experiment share their errors.
"""

from collections.abc import Collection, Mapping

import numpy as np

LEVEL = 0.9
FACTOR = 1.28  # by `factor` of all judged numbers, rounded up; a test derives it anew
# The same for a step whose time follows from FLOPs and an assumed utilisation: within it are the
# images/s of 90 % of the kinds of networks in papers/step_times.csv, each predicted by shares that
# were fitted to all other kinds. benchmarks/step_times.py derives it anew.
STEP_FACTOR = 1.53
Errors = Mapping[tuple[str, str], Collection[float]]  # by platform and experiment


def factor(errors: Errors) -> float:
    """Return the factor within which a prediction of another experiment is, by LEVEL.

    `errors`: logarithms of observed / predicted. Each of K experiments has the weight 1 / (K + 1),
    and one that is not known yet has the rest. With fewer than nine, this is the largest error.
    """
    sizes = [np.abs([*each]) for each in errors.values()]
    values = np.concatenate([*sizes, [max(map(max, sizes))]])
    weights = np.concatenate([*(np.full(len(each), 1 / len(each)) for each in sizes), [1]])
    level = LEVEL - 1e-12  # sums of weights are rounded
    return float(np.exp(np.quantile(values, level, weights=weights, method="inverted_cdf")))


def inside(errors: Errors) -> tuple[int, int]:
    """Count the numbers within the factor that the other platforms give, and all numbers."""
    found = [
        abs(error) <= np.log(factor({of: each for of, each in errors.items() if of[0] != platform}))
        for (platform, _), own in errors.items()
        for error in own
    ]
    return sum(found), len(found)
