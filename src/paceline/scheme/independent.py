"""Independent workers: they never communicate, so this is the upper bound on throughput. Their mean
at the end is one-shot averaging (Zinkevich et al. 2010, NIPS).

    every step:   w_k <- sgd(w_k, g_k)

The mean of all workers' weights is evaluated.

Law: every worker is plain SGD on its own batches.
"""

from paceline.scheme.rule import AbstractScheme, Apply, Step, WorkerView
from paceline.settings import settings


@settings("scheme")
class Independent(AbstractScheme):
    """Workers that share nothing; there are no settings."""

    def step(self, worker: WorkerView) -> Step:
        yield Apply(worker.gradient)
