"""Synchronous parameter servers: SGD with backup workers (Chen et al. 2016, arXiv:1604.00981;
without them Campos et al. 2017, Procedia Computer Science 108).

    worker k:   push g_k(w)
    server:     of K workers, the first K - b pushes of a version:   w <- sgd(w, mean g)
                a later one is dropped; its worker goes on with the latest weights

With `group_size`, the workers of a group push one gradient, their mean, as a node with its GPUs
does in Campos's synchronous mode.

Law: without backup workers this is sync_allreduce.
"""

from pydantic import Field

from paceline.errors import SettingError
from paceline.scheme.audit import ServedLog, not_together
from paceline.scheme.rule import AbstractServedScheme, Claim, GroupSize, Sharding
from paceline.scheme.serving import AbstractServing, Together
from paceline.settings import Count, Whole, settings


@settings("scheme")
class SyncParameterServer(AbstractServedScheme):
    """Servers apply, for each version of the weights, the mean of the first K - b gradients pushed
    for it, of K workers. `backup_workers`: b. AbstractScheme documents the other settings.
    """

    servers: Whole = Field()
    backup_workers: Count = 0
    group_size: GroupSize = 1
    sharding: Sharding = "bytes"

    def __post_init__(self) -> None:
        if self.backup_workers and self.servers > 1:
            message = "one server must decide which push is late: servers=1 is needed"
            raise SettingError("scheme.backup_workers", message)
        if self.backup_workers and self.group_size > 1:
            message = "a late group would delay several workers: group_size=1 is needed"
            raise SettingError("scheme.backup_workers", message)

    def serving(self, num_workers: int) -> AbstractServing:
        if self.backup_workers >= num_workers:
            message = f"{self.backup_workers} leave none of workers={num_workers}"
            raise SettingError("scheme.backup_workers", message)
        pushing = num_workers // self.group_size
        return Together(pushing, pushing - self.backup_workers)

    def not_served(self, log: ServedLog) -> str:
        return not_together(log, len(log.workers) - self.backup_workers)

    def claim(self, num_workers: int) -> Claim:
        return "synchronous"
