"""Post-local SGD (Lin et al. 2018, arXiv:1808.07217): synchronous first, local SGD later.

    until `switch_at` of the run's samples:   g <- mean_k g_k;   w_k <- sgd(w_k, g)
    afterwards, every step:                   w_k <- sgd(w_k, g_k)
    every `period` steps, and at the end:     w_k <- mean_j w_j

Law: switched at 1 this is sync_allreduce, at 0 local_sgd.
"""

from torch import Tensor

from paceline.scheme.local_sgd import LocalSGD
from paceline.scheme.rule import AbstractScheme, Apply, Claim, Mean, Step, WorkerView, check_share


class PostLocalSGD(AbstractScheme):
    """`switch_at`: a share of the run's samples. `period`: steps of each worker between means."""

    needs_end = True

    def __init__(self, period: int, switch_at: float) -> None:
        self._later = LocalSGD(period)
        self._switch_at = check_share("switch_at", switch_at)

    def step(self, worker: WorkerView) -> Step:
        if worker.progress < self._switch_at:
            mean = yield Mean(worker.gradient)
            yield Apply(mean)
        else:
            yield from self._later.step(worker)

    def end(self, weights: Tensor, steps: int) -> Step:
        yield from self._later.end(weights, steps)

    def claim(self, workers: int) -> Claim:
        return self._later.claim(workers)
