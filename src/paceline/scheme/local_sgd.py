"""Local SGD (Stich 2018, arXiv:1805.09767).

    every step:                             w_k <- sgd(w_k, g_k)
    every `period` steps, and at the end:   w_k <- mean_j w_j

Each worker keeps its own momentum.

Law: with period 1 this is the same as sync_allreduce, for every optimizer whose steps are linear in
the gradients, as those of SGD are, also with momentum; not for one such as Adam.
"""

from paceline.scheme.rule import AbstractScheme, Adopt, Apply, Claim, Mean, Step, Vector, WorkerView
from paceline.settings import Whole, settings


@settings("scheme")
class LocalSGD(AbstractScheme):
    """Workers average their weights every `period` steps of each worker."""

    equal_steps = True

    period: Whole

    def step(self, worker: WorkerView) -> Step:
        weights = yield Apply(worker.gradient)
        if (worker.num_steps + 1) % self.period == 0:
            yield from _meet(weights)

    def end(self, weights: Vector, steps: int) -> Step:
        if steps % self.period:
            yield from _meet(weights)

    def claim(self, num_workers: int) -> Claim:
        return "equal at the end"


def _meet(weights: Vector) -> Step:
    mean = yield Mean(weights)
    yield Adopt(mean)
