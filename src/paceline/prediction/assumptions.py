"""Draws of what a profile assumes, and the interval of a prediction over them."""

import copy
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from paceline.cluster.virtual import VirtualCluster
from paceline.errors import SettingError
from paceline.prediction.timed_run import timed_run
from paceline.record.point import Point
from paceline.record.point_config import PointConfig
from paceline.timing.workload import AbstractWorkload

GREATEST_FIXED_SHARE = 0.5  # of a step that was timed at one batch size only; also an assumption
COVERED = 0.9  # of the draws


class Interval(NamedTuple):
    """Images/s between which `COVERED` of the draws lie."""

    low: float
    high: float


def interval(config: PointConfig, workload: AbstractWorkload, steps: int, draws: int) -> Interval:
    """Predict `draws` times, each with other values of what the point's profile assumes.

    Raises SettingError for an assumption about a setting that does not exist, and for a range
    whose least value is above its greatest.
    """
    rates = [
        timed_run(Point.of(drawn), steps, workload).images_per_second
        for drawn in drawn_configs(config, draws)
    ]
    low, high = np.quantile(rates, [(1 - COVERED) / 2, (1 + COVERED) / 2])
    return Interval(float(low), float(high))


def drawn_configs(config: PointConfig, draws: int) -> Iterator[PointConfig]:
    """Yield configurations whose clusters have values from the ranges in cluster.assumed.

    Each is uniform in its logarithm, or uniform where the range begins at 0. Of a step that was
    timed at one batch size, the part that does not grow with the batch is drawn as well. The seed
    of the jitter differs between draws.
    """
    cluster = Point.of(config).cluster
    assert isinstance(cluster, VirtualCluster)
    for draw in range(draws):
        random = np.random.default_rng([config.seed, draw])
        values = copy.deepcopy(dict(config.values["cluster"]))
        for setting, (low, high) in cluster.assumed.items():
            if low > high:
                raise SettingError("cluster.assumed", f"{setting}: {low:g} is above {high:g}")
            _set(values, setting, _between(low, high, random.random()))
        for name, rate in cluster.step_rates.items():
            least, greatest = rate.batch_sizes
            if least == greatest:
                share = GREATEST_FIXED_SHARE * random.random()
                values["step_rates"][name] |= {
                    "fixed": share * rate.seconds(least),
                    "per_image": (1 - share) * rate.seconds(least) / least,
                }
        yield config.replaced(cluster=values, seed=config.seed + draw)


def _between(low: float, high: float, share: float) -> float:
    if low == 0:
        return share * high
    return math.exp(math.log(low) + share * math.log(high / low))


def _set(values: Mapping[str, Any], setting: str, value: float) -> None:
    group: Any = values
    *parents, leaf = setting.split(".")
    for parent in parents:
        group = group.get(parent) if isinstance(group, dict) else None
    if not isinstance(group, dict) or leaf not in group:
        raise SettingError("cluster.assumed", f"there is no cluster.{setting}")
    group[leaf] = value
