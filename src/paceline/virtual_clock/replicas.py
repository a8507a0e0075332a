"""Weights and optimizer state of workers that apply updates themselves."""

from typing import Any

import torch
from torch import Tensor

from paceline.engine.flat_sgd import FlatSGD
from paceline.virtual_clock.buffers import Buffer, BufferPool


class RunningMean:
    """Exact where all are equal; one vector, however many are added."""

    def __init__(self) -> None:
        self.count = 0
        self.value = torch.empty(0)

    def add(self, vector: Tensor, times: int = 1) -> None:
        self.count += times
        if self.count == times:
            self.value = vector.clone()
        else:
            self.value.lerp_(vector, times / self.count)


class Replica:
    """Held by the workers for which weights and optimizer state are the same."""

    def __init__(self, weights: Buffer, sgd: FlatSGD, holders: set[int]) -> None:
        self.weights, self.sgd, self.holders = weights, sgd, holders


class Replicas:
    """`of[worker]`: its replica. All start with one; `shared` False: with a copy each."""

    def __init__(
        self, pool: BufferPool, weights: Tensor, segments: list[Any], workers: int, *, shared: bool
    ) -> None:
        self._pool = pool
        first = pool.copy(weights)
        replica = Replica(first, FlatSGD(first.vector, segments), set(range(workers)))
        self.of = [replica] * workers
        self._kept: dict[int, Buffer] = {}  # what workers compute on whose weights have changed
        for worker in range(0 if shared else workers - 1):
            self._split(replica, {worker})

    def begin(self, worker: int) -> Buffer:
        """Its weights, on which it computes now."""
        if (kept := self._kept.pop(worker, None)) is not None:
            self._pool.release(kept)
        return self.of[worker].weights

    def keep(self, worker: int) -> Buffer:
        """A copy of what it computes on, until it begins again: its weights are about to change."""
        if worker not in self._kept:
            self._kept[worker] = self._pool.copy(self.of[worker].weights.vector)
        return self._kept[worker]

    def apply(self, workers: set[int], gradient: Tensor, factor: float) -> None:
        """SGD by the same gradient for these workers; once for those that share a replica."""
        for replica in self._distinct(sorted(workers)):
            among = replica.holders & workers
            own = replica if among == replica.holders else self._split(replica, among)
            own.sgd.step(gradient, factor)

    def hold(self, worker: int, weights: Tensor) -> None:
        """From now on; its optimizer's state stays."""
        self._own(worker).copy_(weights)

    def average(self, one: int, other: int) -> None:
        """The mean of their weights replaces both."""
        if self.of[one] is self.of[other]:
            return
        mean = self._own(one).add_(self.of[other].weights.vector).mul_(0.5)
        self._own(other).copy_(mean)

    def mean(self) -> Tensor:
        """Of the weights of all workers, as a vector of its own."""
        mean = RunningMean()
        for replica in self._distinct(range(len(self.of))):
            mean.add(replica.weights.vector, len(replica.holders))
        return mean.value

    def _own(self, worker: int) -> Tensor:
        """Its weights, which nobody shares from now on."""
        replica = self.of[worker]
        own = replica if replica.holders == {worker} else self._split(replica, {worker})
        return own.weights.vector

    def _distinct(self, workers) -> list[Replica]:
        return list(dict.fromkeys(self.of[worker] for worker in workers))

    def _split(self, replica: Replica, workers: set[int]) -> Replica:
        """A replica for these workers, equal to the one that they shared until now."""
        weights = self._pool.copy(replica.weights.vector)
        own = Replica(weights, replica.sgd.fork(weights.vector), set(workers))
        replica.holders -= workers
        for worker in workers:
            self.of[worker] = own
        return own
