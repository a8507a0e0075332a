"""Post-local SGD (Lin et al. 2018, arXiv:1808.07217): synchronous first, local SGD later.

    until `switch_at` of the run's samples:   g <- mean_k g_k;   w_k <- sgd(w_k, g)
    afterwards, every step:                   w_k <- sgd(w_k, g_k)
    every `period` steps, and at the end:     w_k <- mean_j w_j

Law: with `switch_at=1` this is the same as sync_allreduce, with `switch_at=0` the same as
local_sgd.
"""

from functools import cached_property

from paceline.scheme.local_sgd import LocalSGD
from paceline.scheme.rule import AbstractScheme, Apply, Claim, Mean, Step, Vector, WorkerView
from paceline.settings import Share, Whole, settings


@settings("scheme")
class PostLocalSGD(AbstractScheme):
    """Synchronous SGD that changes to local SGD. `switch_at`: share of the run's samples after
    which it changes. `period`: steps of each worker from one mean of the weights to the next.
    """

    equal_steps = True
    needs_end = True

    period: Whole
    switch_at: Share

    @property
    def averages_gradients(self) -> bool:
        return self.switch_at > 0

    def step(self, worker: WorkerView) -> Step:
        if worker.progress < self.switch_at:
            mean = yield Mean(worker.gradient)
            yield Apply(mean)
        else:
            yield from self._later.step(worker)

    def end(self, weights: Vector, steps: int) -> Step:
        yield from self._later.end(weights, steps)

    def claim(self, num_workers: int) -> Claim:
        return self._later.claim(num_workers)

    @cached_property
    def _later(self) -> LocalSGD:
        return LocalSGD(self.period)
