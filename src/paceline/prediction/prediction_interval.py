"""Intervals of predicted images/s, by what the model was off for numbers that it was not fitted to.

An interval is the prediction divided and multiplied by one factor. This is split conformal
prediction (Vovk, Gammerman, Shafer 2005) on the absolute logarithms of observed / predicted, with
equal weight for each experiment, since the numbers of one experiment share their errors.
"""

import math
from collections.abc import Collection, Mapping

import numpy as np

from paceline.cluster.virtual import VirtualCluster
from paceline.record.point import Point
from paceline.scheme.accounting import Accounting

LEVEL = 0.9
FACTOR = 1.28  # by `factor` of all judged numbers, rounded up; a test derives it anew
# The same for a step whose time follows from FLOPs and an assumed utilisation: within it are the
# images/s of 90 % of the kinds of networks in papers/step_times.csv, each predicted by shares that
# were fitted to all other kinds. benchmarks/step_times.py derives it anew.
STEP_FACTOR = 1.53
MOST_SENDERS = 2  # of whole gradients to one receiver at once, up to which the model is confirmed
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


def lacking(point: Point) -> str:
    """Return which part the model lacks for a point, in words; "" if none is known.

    Many senders to one server cost more than the bytes that they send, as FireCaffe's Figure 5 and
    logs of TensorFlow show; synchronous ones of ours do not from 300 KB on.
    """
    scheme, cluster = point.scheme, point.cluster
    assert isinstance(cluster, VirtualCluster)
    senders = point.workers if scheme.collective == "parameter_server" else 0
    if scheme.servers:
        senders = len(Accounting(scheme, point.workers).pushing)
    each, profile = senders / max(1, scheme.servers), cluster.profile
    link = profile.node_link if profile.one_machine else profile.link
    if point.workers > 1 and math.isinf(link.bandwidth):
        return "messages take no time on this cluster"
    if each > MOST_SENDERS and not profile.one_machine:
        return (
            f"each server gets {each:.3g} whole gradients in a step of all workers, more than the "
            f"{MOST_SENDERS} that were checked; expect slower, as published servers were"
        )
    return ""
