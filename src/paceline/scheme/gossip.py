"""Asynchronous decentralized SGD: AD-PSGD (Lian et al. 2018, arXiv:1710.06952).

    active worker k, beside every step:   w_k, w_j <- (w_k + w_j) / 2    j a random neighbour
    worker k, every step:                 w_k <- sgd(w_k, g_k)           g_k at the step's start

No worker waits: two workers continue to compute while the mean of their weights is formed, and an
active worker does not begin another mean until it holds this one. Updates that worker k applies
until then are added to the mean, as in the paper, where a second thread communicates. Every edge of
the graph joins an active worker (of odd index), which has one mean under way at most, and a passive
one, which never asks and answers one request at a time; so no two means change the same weights at
once. Edges join workers k - d and k + d, modulo workers, where one is active and one passive, for

    ring           d = 1
    exponential    d = 1, 3, 5, 9, ...: 1 and 2^i + 1    (Assran et al. 2019, arXiv:1811.10792)
    complete       every d

With up to 8 workers the last two are equal.

Law: averaging preserves the mean of all weights; over a complete graph with rate 0, workers reach
consensus. One worker is plain SGD.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np

from paceline.random_bits import random_bits
from paceline.scheme.audit import RunLog, not_in_pairs
from paceline.scheme.rule import AbstractScheme, Apply, PairMean, Step, WorkerView
from paceline.settings import settings


@settings("scheme")
class Gossip(AbstractScheme):
    """Pairs of workers average their weights. `graph`: which pairs there are. In each step a
    worker's partner is drawn from these by (seed, worker, step).
    """

    graph: Literal["ring", "exponential", "complete"]

    def step(self, worker: WorkerView) -> Step:
        yield Apply(worker.gradient)

    def beside(self, worker: int, num_workers: int, num_steps: int, seed: int) -> Step | None:
        partners = self.partners(worker, num_workers)
        return _average(partners, worker, num_steps, seed) if partners else None

    def broken(self, log: RunLog) -> str:
        return not_in_pairs(log.averages, log.steps)

    def partners(self, worker: int, num_workers: int) -> tuple[int, ...]:
        if not _is_active(worker):
            return ()
        distances = self._distances(num_workers)
        ends = {(worker + d * way) % num_workers for d in distances for way in (-1, 1)}
        return tuple(sorted(end for end in ends if not _is_active(end)))

    def _distances(self, num_workers: int) -> Iterable[int]:
        if self.graph == "complete":
            return range(1, num_workers)
        longer = (2**i + 1 for i in range(1, num_workers.bit_length()))
        return [1, *(longer if self.graph == "exponential" else ())]


def _average(partners: Sequence[int], worker: int, num_steps: int, seed: int) -> Step:
    drawn = int(random_bits(np.array([num_steps]), "partner", seed, worker)[0])
    yield PairMean(partners[drawn % len(partners)])


def _is_active(worker: int) -> bool:
    return worker % 2 == 1
