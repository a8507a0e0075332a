"""Predicts paced points, whose steps and links are emulated, and compares their staleness."""

import csv
import io
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from paceline.prediction.timed_run import TimedRun, timed_run
from paceline.record.archive import ARCHIVE, read_archive
from paceline.record.point import Point
from paceline.record.point_config import PointConfig
from paceline.record.target import Target
from paceline.timing.step_times import interpolated

Values = Mapping[str, Any]  # of a cluster's settings
DRAWS = 199  # predicted runs of other seeds, against which staleness is compared
_EMULATED = (
    *("step_seconds", "step_jitter", "slow_workers", "slow_factor"),
    *("straggler_probability", "straggler_factor"),
    *("workers_per_node", "server_placement", "link"),
)
_LINKS = ("link", "node_link", "allreduce_link")
# How unevenly answers share an emulated link, by TCP: benchmarks/many_to_one.py measured 0.27 to
# 0.83 in two runs, and 0.005 to 0.024 for pushes to one server.
UNEVENNESS = 0.6
_BY_WORKERS = ("message_seconds", "message_bandwidth")


class ComparedStaleness(NamedTuple):
    """Staleness of a run beside that of predicted ones.

    `distance`: total variation between its distribution and the pooled predicted one, 0 to 1. `p`:
    share of runs, itself included, that are as far from all together.
    """

    distance: float
    p: float


def run_of(config: PointConfig, cluster: Values, samples: int) -> TimedRun:
    """Run as many steps of a point on another cluster, without training."""
    point = Point.of(config.replaced(cluster=cluster))
    steps = samples // (point.batch_size * point.workers)
    return timed_run(point, steps)


def staleness_of(folder: Path) -> dict[str, Counter[int]]:
    """Return the pushes to the first server by their staleness, of each point with servers."""
    found: dict[str, Counter[int]] = {}
    for key, table in read_archive(folder / ARCHIVE)["staleness.csv"].items():
        for row in csv.DictReader(io.StringIO(table.decode())):
            if row["server"] == "0":
                pushes = found.setdefault(key, Counter())
                pushes[int(row["staleness"])] += int(row["pushes"])
    return found


def of_paced(
    config: PointConfig, cluster: Values, samples: int, pushes: Counter[int] | None
) -> tuple[str, ...]:
    """Return images/s, those with free messages, distance and p of staleness, as text.

    Free: of the same steps if messages and servers took no time. `pushes`: to the first server, by
    their staleness; None without one. `compared_staleness` compares them.
    """
    processes = config.values["workers"] * config.of_the_run("model")["shards"]
    paced = emulating(cluster, config.values["cluster"], processes)
    rates = [run_of(config, each, samples).images_per_second for each in (paced, _free(paced))]
    of_rates = (f"{rates[0]:.6g}", f"{rates[1]:.6g}")
    if not pushes:
        return *of_rates, "", ""
    others = [
        run_of(config.replaced(seed=seed), paced, samples).staleness
        for seed in range(DRAWS + 1)
        if seed != config.values["seed"]
    ]
    compared = compared_staleness(pushes, others[:DRAWS])
    return *of_rates, f"{compared.distance:.3g}", f"{compared.p:.3g}"


def emulating(cluster: Values, paced: Values, processes: int) -> Values:
    """Return a modelled cluster with the steps, and between nodes the links, of a paced one.

    Messages take no less than inside a node, and all nodes share the cores of one machine, whose
    costs are those of all `processes` of workers.
    """
    own = {name: value for name, value in paced.items() if name in _EMULATED}
    own["server_seconds"] = max(cluster["server_seconds"], paced["server_seconds"])
    if "link" in paced:
        latency = cluster["node_link"]["latency"]
        own["link"] = {**paced["link"], "latency": latency, "unevenness": UNEVENNESS}
        own["node_cores"] = cluster["node_cores"] / math.ceil(processes / paced["workers_per_node"])
        modelled = Target("cluster", dict(cluster)).build()  # with what it leaves out
        for name in _BY_WORKERS:
            if values := getattr(modelled, name):
                own[name] = {processes: interpolated(values, processes)}
    return {**cluster, **own, "overlap": False}


def _free(cluster: Values) -> Values:
    """Return the cluster with messages and servers that take no time."""
    free = {"latency": 0.0, "bandwidth": None}
    links = {name: free for name in _LINKS if name in cluster}
    servers = {"server_seconds": 0.0, "server_bandwidth": None}
    return {**cluster, **links, **servers, "node_cores": None}


def compared_staleness(
    pushes: Counter[int], predicted: Sequence[Counter[int]]
) -> ComparedStaleness:
    """Compare a run with predicted runs of other seeds; each has pushes by their staleness.

    If it is one more draw from the prediction, each rank of its distance from the pool of all runs
    is equally probable: p <= 5 % in at most 5 % of such runs (Barnard 1963, J. R. Stat. Soc. B 25;
    Hope 1968, J. R. Stat. Soc. B 30).
    """
    length = 1 + max(max(each) for each in (pushes, *predicted))
    shares = np.array([_shares(each, length) for each in (pushes, *predicted)])
    distances = _distance(shares, shares.mean(axis=0))
    as_far = distances >= distances[0] * (1 - 1e-9)
    own = float(_distance(shares[:1], shares[1:].mean(axis=0))[0])
    return ComparedStaleness(own, float(as_far.mean()))


def _shares(pushes: Counter[int], length: int) -> np.ndarray:
    counts = np.bincount(list(pushes), weights=list(pushes.values()), minlength=length)
    return counts / counts.sum()


def _distance(shares: np.ndarray, of: np.ndarray) -> np.ndarray:
    """Return the total variation of each row's distribution from another."""
    return np.abs(shares - of).sum(axis=1) / 2
