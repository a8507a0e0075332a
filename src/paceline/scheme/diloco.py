"""Local SGD with an outer optimizer: DiLoCo (Douillard et al. 2023, arXiv:2311.08105).

    every step:                             w_k <- sgd(w_k, g_k)
    every `period` steps:                   d <- w - mean_k w_k;   v <- m v + d
                                            w <- w - r (d + m v), or w - r v without Nesterov
                                            w_k <- w
    at the end, after a part of a period:   w_k <- mean_j w_j

w are the weights after the last meeting, r is the `outer_lr`, m the `outer_momentum`. Each worker
keeps the momentum of its own optimizer, with w and v beside it. The paper has AdamW as the workers'
optimizer, r = 0.7, m = 0.9, Nesterov's momentum, and a period of 500. Without Nesterov this is
SlowMo (Wang et al. 2019, arXiv:1910.00643), where the rate is constant over the run and workers
keep their momentum, and the block momentum of BMUF (Chen & Huo 2016, ICASSP); with it, BMUF's
Nesterov block momentum.

Law: with an outer rate of 1 and no outer momentum this is local_sgd; so with a period of 1 as well
it is sync_allreduce, under the condition that local_sgd names.
"""

from pydantic import Field

from paceline.scheme.local_sgd import LocalSGD
from paceline.scheme.rule import (
    AbstractScheme,
    Adopt,
    Apply,
    Claim,
    Keep,
    Kept,
    Mean,
    Step,
    Vector,
    WorkerView,
)
from paceline.settings import Below1, Flag, Positive, Whole, settings


@settings("scheme")
class DiLoCo(AbstractScheme):
    """Workers go from their last common weights by a step of SGD with momentum, for which what they
    have moved since then on average stands in for the gradient. `period`: steps of each worker
    between two meetings.
    """

    equal_steps = True

    period: Whole = Field()
    outer_lr: Positive = Field()
    outer_momentum: Below1 = Field()
    nesterov: Flag = Field()

    def step(self, worker: WorkerView) -> Step:
        if worker.num_steps == 0:
            yield Keep((worker.weights, 0 * worker.weights))
        weights = yield Apply(worker.gradient)
        if (worker.num_steps + 1) % self.period:
            return
        mean = yield Mean(weights)
        before, moving = yield Kept(2)
        moved = before - mean
        moving = self.outer_momentum * moving + moved
        change = self.outer_momentum * moving + moved if self.nesterov else moving
        after = before - self.outer_lr * change
        yield Keep((after, moving))
        yield Adopt(after)

    def end(self, weights: Vector, steps: int) -> Step:
        return LocalSGD(self.period).end(weights, steps)

    def claim(self, num_workers: int) -> Claim:
        return "equal at the end"
