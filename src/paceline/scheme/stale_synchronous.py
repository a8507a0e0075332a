"""Bounded staleness: stale synchronous parallel SGD (Ho et al. 2013, NIPS).

    worker k:   push g_k(w_k);   w_k <- latest w, once k leads the slowest by <= `bound` steps
    server:     on every push   w <- sgd(w, g_k)

Law: with bound 0, learning rate r and no momentum this is the same as synchronous SGD of K workers
with learning rate K r; with a bound that is never reached it is the same as async_parameter_server.
"""

from pydantic import Field

from paceline.scheme.audit import ServedLog, not_bounded
from paceline.scheme.rule import AbstractServedScheme, Claim, GroupSize, Sharding
from paceline.scheme.serving import AbstractServing, Bounded
from paceline.settings import Count, Whole, settings


@settings("scheme")
class StaleSynchronous(AbstractServedScheme):
    """Fast workers wait for slow ones. `bound`: number of steps by which a worker may lead the
    slowest one and still continue. AbstractScheme documents the other settings.
    """

    servers: Whole = Field()
    bound: Count = Field()
    group_size: GroupSize = 1
    sharding: Sharding = "bytes"

    def serving(self, num_workers: int) -> AbstractServing:
        return Bounded(range(0, num_workers, self.group_size), self.bound)

    def not_served(self, log: ServedLog) -> str:
        return not_bounded(log, self.bound)

    def claim(self, num_workers: int) -> Claim:
        return "synchronous" if num_workers == self.group_size > 1 else "partly asynchronous"
