"""All-reduce: synchronous SGD (Goyal et al. 2017, arXiv:1706.02677, section 2.3).

    every step:   g <- mean_k g_k;   w <- sgd(w, g)    on every worker

Law: K workers with batches of B/K images get the same weights as one worker with batches of B, also
with momentum and weight decay. On real processes Lightning's DDP applies this rule, with buckets
that overlap backward.
"""

from paceline.scheme.rule import AbstractScheme, Apply, Claim, Compression, Mean, Step, WorkerView
from paceline.settings import settings


@settings("scheme")
class SyncAllReduce(AbstractScheme):
    """Synchronous SGD on weights that all workers share. `collective`: how the mean is formed,
    which changes only the time. `compression`: type to which gradients are rounded before they are
    sent, on real processes by torch's hook of this name.
    """

    carried_out_by_ddp = True
    equal_steps = True

    collective: str = "native"
    compression: Compression = "none"

    @property
    def averages_gradients(self) -> bool:
        return True

    def step(self, worker: WorkerView) -> Step:
        mean = yield Mean(worker.gradient)
        yield Apply(mean)

    def claim(self, num_workers: int) -> Claim:
        return "synchronous"
