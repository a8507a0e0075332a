"""Synchronous first, asynchronous later (Li et al. 2021, ICDCS, Sync-Switch).

    worker k:   push g_k(w_k)
    server:     until `switch_at` of the run's samples, when all have pushed   w <- sgd(w, mean g)
                afterwards, on every push   w <- sgd(w, g_k)

A rule of the rate goes by the batches behind each update, as the paper's does.

Law: switched at 1 this is sync_parameter_server, at 0 async_parameter_server.
"""

import math

from paceline.scheme.rule import AbstractServedScheme, Claim, check_servers, check_share
from paceline.scheme.serving import Serving, ThenAtOnce


class SyncThenAsync(AbstractServedScheme):
    """`switch_at`: a share of the run's samples."""

    needs_end = True

    def __init__(self, servers: int, switch_at: float) -> None:
        self.servers = check_servers(servers)
        self._switch_at = check_share("switch_at", switch_at)

    def claim(self, workers: int) -> Claim:
        if self._switch_at == 1:
            return "synchronous"
        return "partly asynchronous" if self._switch_at else "asynchronous"

    def batches_per_round(self, workers: int) -> int:
        return workers

    def batches(self, updates: int, workers: int, num_steps: int | None) -> int:
        if num_steps is None:
            return updates * workers
        together = math.ceil(self._switch_at * num_steps / workers)
        return min(updates, together) * workers + max(0, updates - together)

    def expected_staleness(self, workers: int) -> float:
        return float(workers - 1) if self._switch_at < 1 else 0.0

    def serving(self, workers: int) -> Serving:
        return ThenAtOnce(workers, self._switch_at)
