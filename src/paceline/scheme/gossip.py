"""Gossip: asynchronous decentralised SGD, AD-PSGD (Lian et al. 2018, arXiv:1710.06952).

    active worker k, every step:   w_k, w_j <- (w_k + w_j) / 2    at once, j drawn of its neighbours
    worker k, every step:          w_k <- sgd(w_k, g_k)           g_k of the weights before the mean

Every edge of the graph joins an active worker (of odd index) and a passive one, which never asks:
so nobody is asked while it waits, no two wait for each other, and each mean is atomic. A passive
worker is averaged in the middle of its steps, too. Between workers k - d and k + d, modulo workers,
there is an edge, where one is active and one passive, for

    ring           d = 1
    exponential    d = 1, 3, 5, 9, ...: 1 and 2^i + 1    (Assran et al. 2019, arXiv:1811.10792)
    complete       every d

Up to 8 workers the last two are the same.

Law: averaging keeps the mean of all weights; over a complete graph, when the rate is 0, workers
reach consensus. One worker is plain SGD.
"""

from collections.abc import Iterable

import numpy as np

from paceline.errors import SettingError
from paceline.random_bits import random_bits
from paceline.scheme.rule import AbstractScheme, Apply, PairMean, Step, WorkerView

GRAPHS = ("ring", "exponential", "complete")


class Gossip(AbstractScheme):
    """`graph`: who averages with whom. Who is drawn depends on (worker, step) alone."""

    equal_steps = False

    def __init__(self, graph: str) -> None:
        if graph not in GRAPHS:
            message = f"there is no {graph}; there are: {', '.join(GRAPHS)}"
            raise SettingError("scheme.graph", message)
        self._graph = graph

    def step(self, worker: WorkerView) -> Step:
        if partners := self.partners(worker.index, worker.num_workers):
            drawn = int(random_bits(np.array([worker.num_steps]), "partner", worker.index)[0])
            yield PairMean(partners[drawn % len(partners)])
        yield Apply(worker.gradient)

    def partners(self, worker: int, workers: int) -> tuple[int, ...]:
        if not _is_active(worker):
            return ()
        ends = {(worker + d * way) % workers for d in self._distances(workers) for way in (-1, 1)}
        return tuple(sorted(end for end in ends if not _is_active(end)))

    def _distances(self, workers: int) -> Iterable[int]:
        if self._graph == "complete":
            return range(1, workers)
        longer = (2**i + 1 for i in range(1, workers.bit_length()))
        return [1, *(longer if self._graph == "exponential" else ())]


def _is_active(worker: int) -> bool:
    return worker % 2 == 1
