"""Computes the share of runs that succeed, with its exact interval."""

from scipy.stats import binomtest

from paceline.analysis.statistics.estimate import LEVEL, Estimate


def success_rate(successes: int, runs: int, level: float = LEVEL) -> Estimate:
    """Return the share with the interval of Clopper and Pearson (1934, Biometrika 26).

    It covers the true rate with probability `level` at least: no success in 3 runs leaves rates up
    to 71 % possible.
    """
    low, high = binomtest(successes, runs).proportion_ci(level, method="exact")
    return Estimate(successes / runs, low, high)
