"""Time that the movement of data takes on a modelled cluster."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from paceline.timing.profile import ClusterProfile


class Exchanged(NamedTuple):
    """All-to-all among `workers`; `num_bytes`: from each of them to each, [workers, workers]."""

    workers: range
    num_bytes: np.ndarray


def shuffle_seconds(exchanges: Sequence[Exchanged], profile: ClusterProfile) -> float:
    """Return the seconds of all-to-alls at the same time, each by pairwise exchange.

    p workers take p - 1 rounds, each with a latency, and the bytes of the fullest link: those that
    a worker sends or receives inside its node, or all workers of a node to and from others
    (Thakur, Rabenseifner, Gropp 2005, IJHPCA 19(1): (p - 1) latency + n / BW for n bytes that each
    of p nodes sends). The cores of a node pass the bytes inside it.
    """
    load = _Load(profile)
    for exchange in exchanges:
        load.add(exchange)
    return load.seconds


def scatter_seconds(num_bytes: int, receivers: int, profile: ClusterProfile) -> float:
    """Return the seconds in which a worker sends so many bytes to each receiver of its node."""
    return receivers * profile.node_link.seconds(num_bytes)


class _Load:
    """Bytes on each link, and the latencies of the rounds."""

    def __init__(self, profile: ClusterProfile) -> None:
        self._profile = profile
        self._by_worker = 0.0  # most that one sends or receives inside its node
        self._inside = Counter[int]()  # by node
        self._out, self._into = Counter[int](), Counter[int]()  # by node, to and from others
        self._latency = 0.0

    def add(self, exchange: Exchanged) -> None:
        nodes = np.array([self._profile.node_of(worker) for worker in exchange.workers])
        same = nodes[:, None] == nodes
        inside = np.where(same, exchange.num_bytes, 0)
        across = exchange.num_bytes - inside
        self._by_worker = max(self._by_worker, float(max(inside.sum(0).max(), inside.sum(1).max())))
        for node in set(nodes.tolist()):
            self._inside[node] += int(inside[nodes == node].sum())
            self._out[node] += int(across[nodes == node].sum())
            self._into[node] += int(across[:, nodes == node].sum())
        link = self._profile.node_link if same.all() else self._profile.link
        self._latency = max(self._latency, (len(exchange.workers) - 1) * link.latency)

    @property
    def seconds(self) -> float:
        profile = self._profile
        by_core = max(self._inside.values()) / (profile.node_cores or math.inf)
        inside = max(self._by_worker, by_core) / profile.node_link.bandwidth
        outside = max(*self._out.values(), *self._into.values()) / profile.link.bandwidth
        return self._latency + max(inside, outside)
