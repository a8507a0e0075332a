"""Decentralized SGD: D-PSGD (Lian et al. 2017, arXiv:1705.09056) and SGP (Assran et al. 2019,
arXiv:1811.10792).

    every step:   w_k <- sgd(w_k, g_k);   w_k <- mean of w_k and of those that worker k receives

A worker waits for the workers that it receives from in this step, and for no others, but a delay
spreads by one edge per step. In step t, worker k sends to the workers, modulo their number K,

    ring           k - 1 and k + 1                                            (D-PSGD)
    exponential    k + 2^i, where i = t modulo the digits of K - 1 in base 2  (SGP)

Each worker sends and receives equally many messages, so that the weights by which SGP corrects
unequal ones all stay 1. As in SGP, a worker applies its gradient before the mean; D-PSGD takes the
mean first.

Law: with up to three workers in a ring, or two by the exponential graph, this is sync_allreduce for
SGD. A mean over neighbours keeps the mean over all. By the exponential graph, 2^n workers agree
after n steps with a rate of 0.
"""

from typing import Literal

from paceline.scheme.rule import AbstractScheme, Adopt, Apply, NeighbourMean, Step, WorkerView
from paceline.settings import settings


@settings("scheme")
class SyncGossip(AbstractScheme):
    """Each worker averages its weights with its neighbours' in each step, by `graph`."""

    equal_steps = True

    graph: Literal["ring", "exponential"]

    def step(self, worker: WorkerView) -> Step:
        weights = yield Apply(worker.gradient)
        steps, workers = (-1, 1), worker.num_workers
        if self.graph == "exponential":
            steps = (2 ** (worker.num_steps % max(1, (workers - 1).bit_length())),)
        receivers, senders = (
            sorted({(worker.index + way * step) % workers for step in steps} - {worker.index})
            for way in (1, -1)
        )
        mean = yield NeighbourMean(weights, tuple(receivers), tuple(senders))
        yield Adopt(mean)
