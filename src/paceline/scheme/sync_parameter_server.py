"""Synchronous SGD on parameter servers, with backup workers (Chen et al. 2016, arXiv:1604.00981;
without them Campos et al. 2017, Procedia Computer Science 108).

    worker k:   push g_k(w)
    server:     of K workers, the first K - b pushes of a version:   w <- sgd(w, mean g)
                a later one is dropped; its worker goes on with the latest weights

Law: without backup workers this is sync_allreduce.
"""

from paceline.errors import SettingError
from paceline.scheme.rule import AbstractServedScheme, Claim, check_servers, check_whole
from paceline.scheme.serving import Serving, Together


class SyncParameterServer(AbstractServedScheme):
    """`backup_workers`: b above, of all workers."""

    def __init__(self, servers: int, backup_workers: int = 0) -> None:
        self.servers = check_servers(servers)
        self._backup_workers = check_whole("backup_workers", backup_workers, at_least=0)
        if backup_workers and servers > 1:
            message = "who is late must be one server's decision: servers=1 is needed"
            raise SettingError("scheme.backup_workers", message)

    def claim(self, workers: int) -> Claim:
        return "synchronous"

    def pushes_per_update(self, workers: int) -> int:
        if self._backup_workers >= workers:
            message = f"{self._backup_workers} leave nobody of workers={workers}"
            raise SettingError("scheme.backup_workers", message)
        return workers - self._backup_workers

    def most_batches(self, num_steps: int, workers: int) -> int:
        return (num_steps // self.pushes_per_update(workers) + 1) * workers  # with late ones

    def serving(self, workers: int) -> Serving:
        return Together(workers, self.pushes_per_update(workers))
