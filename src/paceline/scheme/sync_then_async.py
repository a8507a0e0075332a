"""Synchronous then asynchronous: Sync-Switch (Li et al. 2021, ICDCS).

    worker k:   push g_k(w_k)
    server:     until `switch_at` of the run's samples, when all have pushed   w <- sgd(w, mean g)
                afterwards, on every push   w <- sgd(w, g_k)

A rule that scales the learning rate uses the number of batches whose gradients are in each update,
as in the paper; this number is smaller after the switch.

Law: with `switch_at=1` this is the same as sync_parameter_server, with `switch_at=0` the same as
async_parameter_server.
"""

from pydantic import Field

from paceline.scheme.audit import ServedLog, not_switched
from paceline.scheme.rule import AbstractServedScheme, Claim, GroupSize, Sharding
from paceline.scheme.serving import AbstractServing, ThenAtOnce
from paceline.settings import Share, Whole, settings


@settings("scheme")
class SyncThenAsync(AbstractServedScheme):
    """Servers first wait for the gradients of all workers before each update; later they apply each
    gradient when it arrives. `switch_at`: share of the run's samples after which servers change.
    AbstractScheme documents the other settings.
    """

    needs_end = True

    servers: Whole = Field()
    switch_at: Share = Field()
    group_size: GroupSize = 1
    sharding: Sharding = "bytes"

    def serving(self, num_workers: int) -> AbstractServing:
        return ThenAtOnce(num_workers // self.group_size, self.switch_at)

    def not_served(self, log: ServedLog) -> str:
        return not_switched(log, self.switch_at)

    def claim(self, num_workers: int) -> Claim:
        if self.switch_at == 1 or num_workers == self.group_size > 1:
            return "synchronous"
        return "partly asynchronous" if self.switch_at or self.group_size > 1 else "asynchronous"
