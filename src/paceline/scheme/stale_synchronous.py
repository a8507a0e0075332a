"""Stale synchronous parallel SGD (Ho et al. 2013, NIPS).

    worker k:   push g_k(w_k);   w_k <- latest w, once k leads the slowest by <= `bound` steps
    server:     on every push   w <- sgd(w, g_k)

Law: with bound 0, rate r and no momentum this is synchronous SGD with rate K r; with a bound that
is never reached it is async_parameter_server.
"""

from paceline.scheme.rule import AbstractServedScheme, Claim, check_servers, check_whole
from paceline.scheme.serving import Bounded, Serving


class StaleSynchronous(AbstractServedScheme):
    """`bound`: steps that the fastest worker may have taken more than the slowest."""

    def __init__(self, servers: int, bound: int) -> None:
        self.servers = check_servers(servers)
        self._bound = check_whole("bound", bound, at_least=0)

    def claim(self, workers: int) -> Claim:
        return "partly asynchronous"

    def pushes_per_update(self, workers: int) -> int:
        return 1

    def expected_staleness(self, workers: int) -> float:
        return (workers - 1) / (1 if self._bound else 2)  # with bound 0 all start each step anew

    def serving(self, workers: int) -> Serving:
        return Bounded(workers, self._bound)
